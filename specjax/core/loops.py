"""Loops of compiled programs: steps that run conditionally, and names for profiles and audits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")

ROUNDS = "rounds"
"""The rounds of a decode; long prompts are read in a loop of their own."""

CATCHING_UP = "catching_up"
"""Feeding what a drafter's model has not read; most rounds do not run it."""


def masked_step(wanted: jax.Array, step: Callable[[T], T], carry: T) -> T:
    """`step(carry)` where wanted [] holds, else the carry itself.

    A loop of at most one turn. One of them leaves a cache in the carry where it is; of several in a
    row, as of branches, the compiled program has copies of it.
    """

    def once(loop: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), step(loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], once, (wanted, carry))[1]


def zeros_like_result(make: Callable[[], T]) -> T:
    """Zeros of the shapes that `make()` would give; it does not run."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))
