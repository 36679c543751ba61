"""Drafting nothing: speculative decoding with K = 0 is autoregressive decoding."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.drafting.base import LENGTH, Caches, Context, Draft, Modelless, Models


@dataclasses.dataclass(frozen=True)
class Nothing(Modelless):
    """The drafter of autoregressive decoding."""

    length: ClassVar[int] = 0
    writers: ClassVar[tuple[str, ...]] = ()

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
