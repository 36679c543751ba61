"""Rows that grow at their own pace, and loops that run a step only where a row needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from specjax.models.base import Cache

Caches = dict[str, Cache]
"""Every model's cache by the model's name."""

NOT_A_TOKEN = -1
"""Marks an empty slot; equal to no token of any vocabulary."""


def count_until_eos(tokens: Int[Array, "B N"], eos: tuple[int, ...]) -> Int[Array, " B"]:
    """Tokens [B] of tokens [B, N] up to and including the first EOS; N when there is none."""
    size = tokens.shape[1]
    if size == 0:
        return jnp.zeros((tokens.shape[0],), jnp.int32)
    is_eos = jnp.isin(tokens, jnp.array(eos))
    return jnp.where(jnp.any(is_eos, axis=1), jnp.argmax(is_eos, axis=1) + 1, size)


def ends_text(
    tokens: Int[Array, "B N"], count: Int[Array, " B"], eos: tuple[int, ...]
) -> Bool[Array, " B"]:
    """Whether [B] the last of each row's first `count` tokens [B, N] is an EOS."""
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


def window(tokens: Int[Array, "B L"], begin: Int[Array, " B"], size: int) -> Int[Array, "B {size}"]:
    """tokens[b, begin[b] : begin[b] + size], clipped at the buffer's end; [B, size]."""
    slots = begin[:, None] + jnp.arange(size)
    return jnp.take_along_axis(tokens, slots, axis=1, mode="clip")


def pick_last(
    values: Shaped[Array, "B N *rest"], count: Int[Array, " B"]
) -> Shaped[Array, " B *rest"]:
    """The last of each row's first `count` [B] of values [B, N, ...]; without any its first."""
    index = jnp.maximum(count - 1, 0).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, index, axis=1, mode="clip")[:, 0]


def select_rows(
    row_mask: Bool[Array, " B"], new: Shaped[Array, " B *rest"], old: Shaped[Array, " B *rest"]
) -> Shaped[Array, " B *rest"]:
    """`new` [B, ...] in the rows `mine` [B], `old` in the others."""
    return jnp.where(row_mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def rewind(
    caches: Caches, before: Caches, length: Int[Array, " B"], active: Bool[Array, " B"]
) -> Caches:
    """Rewinds caches to the token before the pending one.

    A minimum, never an assignment: a lagging model has not filled those slots. Rows that were not
    active keep their pointer.
    """

    def one(cache: Cache, old: Cache) -> Cache:
        trusted = jnp.minimum(cache.length, length - 1)
        return cache.replace(length=jnp.where(active, trusted, old.length))

    return {name: one(cache, before[name]) for name, cache in caches.items()}


T = TypeVar("T")

ROUNDS = "rounds"
"""The rounds of a decode; long prompts are read in a loop of their own."""

CATCHING_UP = "catching_up"
"""Feeding what a drafter's model has not read; most rounds do not run it."""


def masked_step(wanted: Bool[Array, ""], step: Callable[[T], T], carry: T) -> T:
    """`step(carry)` where wanted [] holds, else the carry itself.

    A loop of at most one turn. One of them leaves a cache in the carry where it is; of several in a
    row, as of branches, the compiled program has copies of it.
    """

    def once(loop: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), step(loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], once, (wanted, carry))[1]


def make_zeros(make: Callable[[], T]) -> T:
    """Zeros of the shapes that `make()` would give; it does not run."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))
