"""The empty drafter: speculative decoding with K = 0 is autoregressive decoding."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context
from specjax.contracts.draft import LENGTH, Draft
from specjax.contracts.drafter import STOP, Drafter, Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec


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
