"""Operations on rows of different lengths, and steps that run only when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from specjax.models.base import Cache

Caches = dict[str, Cache]
"""Caches by model name."""

NOT_A_TOKEN = -1
"""Marks an empty slot; not an id of any vocabulary."""


def count_until_eos(tokens: Int[Array, "B N"], eos: tuple[int, ...]) -> Int[Array, " B"]:
    """Counts tokens [B, N] up to and including the first EOS, [B]; N without EOS."""
    size = tokens.shape[1]
    if size == 0:
        return jnp.zeros((tokens.shape[0],), jnp.int32)
    is_eos = jnp.isin(tokens, jnp.array(eos))
    return jnp.where(jnp.any(is_eos, axis=1), jnp.argmax(is_eos, axis=1) + 1, size)


def ends_with_eos(
    tokens: Int[Array, "B N"], count: Int[Array, " B"], eos: tuple[int, ...]
) -> Bool[Array, " B"]:
    """Returns whether [B] the last of each row's first `count` tokens [B, N] is an EOS."""
    return (count > 0) & jnp.isin(pick_last(tokens, count), jnp.array(eos, jnp.int32))


def append(
    buffer: Shaped[Array, "B L *rest"],
    start: Int[Array, " B"],
    values: Shaped[Array, "B N *rest"],
    count: Int[Array, " B"],
) -> Shaped[Array, "B L *rest"]:
    """Writes the first `count` of values [B, N, ...] at each row's `start` in [B, L, ...]."""
    step = jnp.arange(values.shape[1])
    slots = jnp.where(step < count[:, None], start[:, None] + step, buffer.shape[1])
    rows = jnp.arange(buffer.shape[0])[:, None]
    return buffer.at[rows, slots].set(values.astype(buffer.dtype), mode="drop")


def slice_window(
    tokens: Int[Array, "B L"], begin: Int[Array, " B"], size: int
) -> Int[Array, "B {size}"]:
    """Returns tokens[b, begin[b] : begin[b] + size] [B, size], clipped at the buffer's end."""
    slots = begin[:, None] + jnp.arange(size)
    return jnp.take_along_axis(tokens, slots, axis=1, mode="clip")


def pick_last(
    values: Shaped[Array, "B N *rest"], count: Int[Array, " B"]
) -> Shaped[Array, " B *rest"]:
    """Returns the last of each row's first `count` values [B, N, ...]; at count 0 the first."""
    index = jnp.maximum(count - 1, 0).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, index, axis=1, mode="clip")[:, 0]


def select_rows(
    row_mask: Bool[Array, " B"], new: Shaped[Array, " B *rest"], old: Shaped[Array, " B *rest"]
) -> Shaped[Array, " B *rest"]:
    """Returns `new` [B, ...] in rows of `row_mask` [B], `old` in the others."""
    return jnp.where(row_mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def rewind(
    caches: Caches, before: Caches, length: Int[Array, " B"], active: Bool[Array, " B"]
) -> Caches:
    """Rewinds caches to the token before the pending one.

    Takes a minimum, because a lagging model has not filled those slots. Inactive rows keep their
    pointer.
    """

    def one(cache: Cache, old: Cache) -> Cache:
        trusted = jnp.minimum(cache.length, length - 1)
        return cache.replace(length=jnp.where(active, trusted, old.length))

    return {name: one(cache, before[name]) for name, cache in caches.items()}


T = TypeVar("T")

ROUNDS = "rounds"
"""Scope name of the rounds of a decode; long prompts are read in another loop."""

CATCHING_UP = "catching_up"
"""Scope name of catching up, which most rounds skip."""


def run_if(wanted: Bool[Array, ""], step: Callable[[T], T], carry: T) -> T:
    """Returns `step(carry)` if wanted [] holds, else the carry itself.

    A loop of at most one iteration. XLA then updates a cache in the carry in place; after several
    such loops in a row, as after branches, the compiled program copies it.
    """

    def once(loop: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), step(loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], once, (wanted, carry))[1]


def make_zeros(make: Callable[[], T]) -> T:
    """Returns zeros with the shapes of `make()`, which does not run."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))
