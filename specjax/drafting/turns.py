"""Work that a jitted loop does only sometimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def when(wanted: jax.Array, turn: Callable[[T], T], carry: T) -> T:
    """`turn(carry)` where wanted [] holds, else the carry itself.

    A loop of at most one turn. One of them leaves a cache in the carry where it is; of several in a
    row, as of branches, the compiled program has copies of it.
    """

    def once(loop: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), turn(loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], once, (wanted, carry))[1]
