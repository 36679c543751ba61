"""Shared methods of models that consist of a Flax Linen module and a configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax

from specjax.models.base import Cache, Output, Params, PromptReading, Resume
from specjax.models.caches import move_slots
from specjax.models.info import ModelInfo
from specjax.models.layers import apply, call
from specjax.models.recurrent_caches import LayerCache, RecurrentCache, move_entries


class LinenModel:
    """Implements the model interface by `module`, `info` and the fields below.

    The module has `states`, `teach`, and `compute_logits` with its parts `apply_final_norm` and
    `apply_lm_head`. `states` and `teach` take the result of `select_inputs`, whether dropout is
    off, and the decoder layers (1-based) whose states or logits are returned. `decode_step` and
    `propagate` work on a cache whose data hold the layers' caches as `own`.
    """

    config: Any
    select_inputs: Callable[[Mapping[str, jax.Array]], tuple[jax.Array, ...]]  # of a batch
    start: Callable[..., tuple[Cache, PromptReading]]

    @property
    def module(self) -> nn.Module:
        raise NotImplementedError

    @property
    def info(self) -> ModelInfo:
        raise NotImplementedError

    def teach(
        self,
        params: Params,
        batch: Mapping[str, jax.Array],
        *,
        key: jax.Array | None = None,
        exits: tuple[int, ...] | None = None,
    ) -> tuple[jax.Array, ...]:
        return _teach(self, "teach", exits or (self.info.depth,), params, batch, key)

    def states(
        self, params: Params, batch: Mapping[str, jax.Array], *, key: jax.Array | None = None
    ) -> jax.Array:
        return _teach(self, "states", (self.info.depth,), params, batch, key)[0]

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return apply(self.module, "compute_logits", params, hidden)

    def apply_final_norm(self, params: Params, hidden: jax.Array) -> jax.Array:
        return apply(self.module, "apply_final_norm", params, hidden)

    def apply_lm_head(self, params: Params, normed: jax.Array) -> jax.Array:
        return apply(self.module, "apply_lm_head", params, normed)

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return params["embedding"][tokens].astype(self.config.dtype)

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        position: jax.Array | None = None,
        visible: jax.Array | None = None,
        at: jax.Array | None = None,
        exit: int | None = None,
        resume: Resume | None = None,
        features: tuple[int, ...] = (),
    ) -> tuple[Output, Cache]:
        tree = None if visible is None else (position, visible)
        states = None if resume is None else resume.states
        step = (tokens, cache.data, cache.length, at, states, tree)
        layers = (0 if resume is None else resume.layer, exit or self.info.depth)
        logits, hidden, own, taken = apply(
            self.module, "decode_step", params, *step, layers=layers, features=features
        )
        data = {**cache.data, "own": own}
        return Output(logits, hidden, taken), Cache(data, cache.length + tokens.shape[1])

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        own = [_move(one, cache.length, path, count) for one in cache.data["own"]]
        return Cache({**cache.data, "own": own}, cache.length + count)

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        step = (hidden, cache.data["own"], cache.length)
        own = apply(self.module, "propagate", params, *step, layers=layers)
        return cache.replace(data={**cache.data, "own": own})


def _move(own: LayerCache, start: jax.Array, path: jax.Array, count: jax.Array) -> LayerCache:
    """Moves the first `count` [B] slots of `start + path` [B, N] to `start ..`."""
    if own is None:
        return None
    if isinstance(own, RecurrentCache):
        return move_entries(own, start, path, count)
    return move_slots(own, start, path)


@functools.partial(jax.jit, static_argnames=("model", "method", "exits"), inline=True)
def _teach(
    model: LinenModel,
    method: str,
    exits: tuple[int, ...],
    params: Params,
    batch: Mapping[str, jax.Array],
    key: jax.Array | None,
) -> tuple[jax.Array, ...]:
    """Calls a teacher-forced method of the module on a batch, inlined like `apply`."""
    rngs = None if key is None else {"dropout": key}
    return call(
        model.module, method, params, *model.select_inputs(batch), key is None, exits, rngs=rngs
    )
