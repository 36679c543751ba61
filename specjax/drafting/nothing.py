"""Drafting nothing: speculative decoding with K = 0 is autoregressive decoding."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core.context import Context
from specjax.core.draft import LENGTH, Draft
from specjax.core.drafter import STOP, Drafter, Log, Memory
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec


@DRAFTERS.register("none")
@dataclasses.dataclass(frozen=True)
class Nothing(Drafter):
    """Nothing: autoregressive decoding."""

    @property
    def spec(self) -> Spec:
        return Spec(width=0)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        rows = context.length.shape[0]
        empty = jnp.zeros((rows, 0), jnp.int32)
        return Draft.chain(empty), caches, memory, {STOP: jnp.full((rows,), LENGTH, jnp.int32)}
