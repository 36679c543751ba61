"""Readers that run the target on a draft, a chain or a tree, in one call.

Layers that ran for drafting are not run again: Kim et al., "Speculative Decoding with Big Little
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
class WholeReader(Reader):
    """One target call as wide as the drafter's longest draft.

    `padded` is a minimum width in drafted tokens: at one width, a token's logits do not depend on
    how it was decoded (docs/how_to/half_precision.md). 0: the draft's width.
    """

    padded: int = 0

    def list_widths(self, width: int) -> tuple[int, ...]:
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
        return read_in_one_call(env, cache, draft, context, judge, features, padded=self.padded)


def read_in_one_call(
    env: Env,
    cache: Cache,
    draft: Draft,
    context: Context,
    judge: Judge,
    features: tuple[int, ...],
    *,
    padded: int = 0,
    **options: Any,
) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
    """Runs the target once on the pending token and the draft; `options` go to `extend`."""
    fed = jnp.concatenate([get_pending_tokens(context)[:, None], draft.tokens], axis=1)
    spare = max(padded - draft.width, 0)
    fed = jnp.pad(fed, ((0, 0), (0, spare)))
    output, cache = env.target.extend(fed, cache, features=features, **options)
    own = jax.tree.map(lambda x: x[:, : draft.width + 1], output)
    reading = Reading(own.logits, own.hidden, own.features)
    width = jnp.full(context.length.shape, draft.width + spare, jnp.int32)
    return judge(draft, reading), reading, cache, {WIDTH: width}


@dataclasses.dataclass(frozen=True)
class TreeReader(Reader):
    """Tree attention: each node attends to the text, its ancestors and itself.

    A node's position is that of its depth. The cache then holds the nodes after its pointer, in
    order.
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
        visible = tree.make_ancestor_mask(draft.tree_parents)
        position = cache.length[:, None] + tree.compute_depth(visible)
        pending = cache.length + 1
        verdict, reading, cache, log = read_in_one_call(
            env, cache, draft, context, judge, features, position=position, visible=visible
        )
        return verdict, reading, cache.replace(length=pending), log


STATES = "states"
"""Entry of `Draft.aux`, [B, K + 1, D]: states of the pending and drafted tokens after layers."""


@dataclasses.dataclass(frozen=True)
class ResumedReader(Reader):
    """Runs the target's layers after the first `layers` on `Draft.aux[STATES]`."""

    layers: int

    def make_call(self, target: str, drafted: int) -> Call:
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
        return read_in_one_call(env, cache, draft, context, judge, features, resume=resume)
