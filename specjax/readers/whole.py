"""The target reads the pending token and the draft behind it in one call."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.core.context import Context, last_token
from specjax.core.draft import Draft
from specjax.core.env import Env
from specjax.core.reader import WIDTH, Judge, Reader
from specjax.core.registry import READERS
from specjax.core.verdict import Reading, Verdict
from specjax.models.base import Cache


@READERS.register("whole")
@dataclasses.dataclass(frozen=True)
class Whole(Reader):
    """One call as wide as the drafter's longest draft.

    `padded` is the number of drafted tokens that every call has room for, whatever the draft's
    width: tokens then get the same logits however they were decoded
    (docs/how_to/half_precision.md). 0: the draft's own.
    """

    padded: int = 0

    def widths(self, width: int) -> tuple[int, ...]:
        return (max(width, self.padded),)

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, jax.Array]]:
        return read_from(env, cache, draft, context, judge, features, padded=self.padded)


def read_from(
    env: Env,
    cache: Cache,
    draft: Draft,
    context: Context,
    judge: Judge,
    features: tuple[int, ...],
    *,
    padded: int = 0,
    **how: Any,
) -> tuple[Verdict, Reading, Cache, dict[str, jax.Array]]:
    """One call of the target on the pending token and the draft, `how` as `extend` has it."""
    fed = jnp.concatenate([last_token(context)[:, None], draft.tokens], axis=1)
    spare = max(padded - draft.width, 0)
    fed = jnp.pad(fed, ((0, 0), (0, spare)))
    output, cache = env.target.extend(fed, cache, features=features, **how)
    own = jax.tree.map(lambda x: x[:, : draft.width + 1], output)
    reading = Reading(own.logits, own.hidden, own.features)
    width = jnp.full(context.length.shape, draft.width + spare, jnp.int32)
    return judge(draft, reading), reading, cache, {WIDTH: width}
