"""Rows that grow at their own pace: writing tokens, cutting drafts, rewinding caches."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.drafting.base import Caches, Draft, until_eos
from specjax.models.base import Cache


def cut(draft: Draft, room: jax.Array, eos: tuple[int, ...]) -> Draft:
    """The draft up to its first EOS and at most `room` [B] tokens.

    Whether a position is drafted then depends on earlier tokens only, so lossless rules stay so.
    """
    length = jnp.minimum(draft.length, room)
    return draft.replace(length=jnp.minimum(length, until_eos(draft.tokens, eos)))


def ends_text(tokens: jax.Array, count: jax.Array, eos: tuple[int, ...]) -> jax.Array:
    """Whether [B] the last of each row's first `count` tokens [B, N] is an EOS."""
    last = jnp.take_along_axis(tokens, jnp.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    return (count > 0) & jnp.isin(last, jnp.array(eos, jnp.int32))


def append(buffer: jax.Array, start: jax.Array, values: jax.Array, count: jax.Array) -> jax.Array:
    """Writes the first `count` of values [B, N, ...] at each row's `start` in [B, L, ...]."""
    step = jnp.arange(values.shape[1])
    slots = jnp.where(step < count[:, None], start[:, None] + step, buffer.shape[1])
    rows = jnp.arange(buffer.shape[0])[:, None]
    return buffer.at[rows, slots].set(values.astype(buffer.dtype), mode="drop")


def rewind(caches: Caches, before: Caches, length: jax.Array, active: jax.Array) -> Caches:
    """Trusts no cache beyond the token before the pending one.

    A minimum, never an assignment: a lagging model has not filled those slots. A row that was not
    active leaves with the pointer it came with.
    """

    def one(cache: Cache, old: Cache) -> Cache:
        trusted = jnp.minimum(cache.length, length - 1)
        return cache.replace(length=jnp.where(active, trusted, old.length))

    return {name: one(cache, before[name]) for name, cache in caches.items()}
