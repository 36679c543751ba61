"""Holding out a random sample of rows that are read as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from specjax.errors import UserError

T = TypeVar("T")


def hold_out(rows: Iterable[T], count: int, seed: int) -> tuple[list[T], Iterator[T]]:
    """A uniform sample of `count` rows, and the other rows.

    The sample is complete when the other rows have been read; nothing else is held (reservoir
    sampling, Vitter 1985, algorithm R). The others may come out of order.

    Raises:
      UserError: at the end, when no row is left beside the sample.
    """
    held: list[T] = []
    return held, _others(rows, held, count, np.random.default_rng(seed))


def _others(
    rows: Iterable[T], held: list[T], count: int, generator: np.random.Generator
) -> Iterator[T]:
    seen = 0
    for row in rows:
        seen += 1
        place = int(generator.integers(seen))
        if len(held) < count:
            held.append(row)
        elif place < count:
            yield held[place]
            held[place] = row
        else:
            yield row
    if seen <= count:
        raise UserError(
            f"config.heldout is {count}; it must be less than the rows with text, which are {seen}"
        )
