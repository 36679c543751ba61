"""A drafter whose cache holds the state at every slot, from which the next token continues."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from specjax.models.base import Cache, Output, Params, Resume
from specjax.models.caches import move_slots, write
from specjax.models.layers import Tree, apply
from specjax.models.on_target import FeatureDrafter, list_slots


class StateDrafter(FeatureDrafter):
    """Reads each token next to the state before it: the target's, or the drafter's own.

    Its cache holds, beside keys and values, the state at every slot: the target's, fused, where
    `absorb` put it, else the drafter's own. A call reads the states before the tokens that it
    feeds. The module has `fuse_states` and `decode_step`.
    """

    def absorb(
        self, params: Params, cache: Cache, features: Float[Array, "B T FE"], slot: Int[Array, " B"]
    ) -> Cache:
        fused_states = apply(self.module, "fuse_states", params, features)
        states = cache.data["states"]
        slots = list_slots(slot, features.shape[1], states.shape[1])
        return cache.replace(data={**cache.data, "states": _put(states, fused_states, slots)})

    def extend(
        self,
        params: Params,
        tokens: Int[Array, "B T"],
        cache: Cache,
        *,
        position: Int[Array, "B N"] | None = None,
        visible: Bool[Array, "B T N"] | None = None,
        at: Int[Array, "B A"] | None = None,
        exit: int | None = None,
        resume: Resume | None = None,
        features: tuple[int, ...] = (),
    ) -> tuple[Output, Cache]:
        if visible is not None and position is None:
            raise ValueError("position is None; a tree's tokens need theirs")
        tree = None if visible is None or position is None else (position, visible)
        data, start, fed = cache.data, cache.length, tokens.shape[1]
        slots = start[:, None] + jnp.arange(fed)
        earlier = slots - 1 if tree is None else _parents(tree, start)
        before = jnp.take_along_axis(data["states"], earlier[..., None], axis=1, mode="clip")
        before = jnp.where((earlier >= 0)[..., None], before, 0)
        step = tokens, before, data, start, at, tree
        logits, states, own = apply(self.module, "decode_step", params, *step)
        data = {**data, "own": own, "states": _put(data["states"], states, slots)}
        return Output(logits, states), Cache(data, start + fed)

    def keep(self, cache: Cache, path: Int[Array, "B N"], count: Int[Array, " B"]) -> Cache:
        data, start = cache.data, cache.length
        own = [move_slots(pair, start, path) for pair in data["own"]]
        kept = start[:, None] + path
        states = jnp.take_along_axis(data["states"], kept[..., None], axis=1, mode="clip")
        slots = start[:, None] + jnp.arange(path.shape[1])
        data = {**data, "own": own, "states": _put(data["states"], states, slots)}
        return Cache(data, start + count)


def _put(
    states: Float[Array, "B C D"], new: Float[Array, "B T D"], slots: Int[Array, "B T"]
) -> Float[Array, "B C D"]:
    """States [B, C, D] with new ones [B, T, D] at slots [B, T]; what lies beyond is dropped."""
    return write(states[:, None], new[:, None], slots)[:, 0]


def _parents(tree: Tree, start: Int[Array, " B"]) -> Int[Array, "B T"]:
    """The slot [B, T] of the token before each fed node: its parent, or the last of the text."""
    position, visible = tree
    fed = visible.shape[1]
    first = start[:, None] - (position.shape[1] - fed)
    own = position[:, -fed:]
    parent = visible & (position[:, None] == own[..., None] - 1)
    node = jnp.argmax(parent, axis=-1)
    return first + jnp.where(jnp.any(parent, axis=-1), node, -1)
