"""The target reads a draft, a chain or a tree, in one call.

Layers that drafted never run twice on a token: Kim et al., "Speculative Decoding with Big Little
Decoder" (2023), section 3.5.2 (docs/methods/early_exit.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from specjax.contracts import tree
from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env
from specjax.contracts.reader import WIDTH, Judge, Reader
from specjax.contracts.registry import READERS
from specjax.contracts.rule import Reading, Verdict
from specjax.contracts.spec import Call
from specjax.models.base import Cache, Resume


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
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
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
) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
    """One call of the target on the pending token and the draft, `how` as `extend` has it."""
    fed = jnp.concatenate([get_pending_tokens(context)[:, None], draft.tokens], axis=1)
    spare = max(padded - draft.width, 0)
    fed = jnp.pad(fed, ((0, 0), (0, spare)))
    output, cache = env.target.extend(fed, cache, features=features, **how)
    own = jax.tree.map(lambda x: x[:, : draft.width + 1], output)
    reading = Reading(own.logits, own.hidden, own.features)
    width = jnp.full(context.length.shape, draft.width + spare, jnp.int32)
    return judge(draft, reading), reading, cache, {WIDTH: width}


@dataclasses.dataclass(frozen=True)
class Tree(Reader):
    """Each node sees the text, its ancestors and itself, at the position of its depth.

    Afterwards the cache holds the nodes behind its pointer, in their order.
    """

    @property
    def trees(self) -> bool:
        return True

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        visible = tree.ancestor_mask(draft.tree_parents)
        position = cache.length[:, None] + tree.depth(visible)
        pending = cache.length + 1
        verdict, reading, cache, log = read_from(
            env, cache, draft, context, judge, features, position=position, visible=visible
        )
        return verdict, reading, cache.replace(length=pending), log


STATES = "states"
"""Entry of `Draft.aux`, [B, K + 1, D]: the pending and the drafted tokens after those layers."""


@dataclasses.dataclass(frozen=True)
class Resumed(Reader):
    """The layers above the first `layers` run on `Draft.aux[STATES]`."""

    layers: int

    def call(self, target: str, drafted: int) -> Call:
        return Call(target, drafted + 1, drafted + 1, resume_from=self.layers)

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        resume = Resume(draft.aux[STATES], self.layers)
        return read_from(env, cache, draft, context, judge, features, resume=resume)
