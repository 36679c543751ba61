"""Drafting nothing: speculative decoding with K = 0 is autoregressive decoding."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.drafting.base import LENGTH, Caches, Context, Draft, Models


@dataclasses.dataclass(frozen=True)
class Nothing:
    """The drafter of autoregressive decoding."""

    width: int = dataclasses.field(default=0, init=False)
    reach: int = dataclasses.field(default=0, init=False)
    models: tuple[str, ...] = dataclasses.field(default=(), init=False)
    tables: tuple[str, ...] = dataclasses.field(default=(), init=False)
    writers: tuple[str, ...] = dataclasses.field(default=(), init=False)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        batch = context.length.shape[0]
        empty = jnp.zeros((batch, 0), jnp.int32)
        zero = jnp.zeros((batch,), jnp.int32)
        return Draft(empty, zero, None, empty, {}, zero + LENGTH), caches
