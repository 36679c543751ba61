"""Which points of two things that should both be large nothing else beats."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def fastest(speed: ArrayLike, quality: ArrayLike, least: float) -> int | None:
    """Index of the fastest of n points with a quality of at least `least`, None without one."""
    speed, quality = np.asarray(speed, np.float64), np.asarray(quality, np.float64)
    good = np.flatnonzero(quality >= least)
    return int(good[np.argmax(speed[good])]) if len(good) else None


def front(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """Whether each of n points is on the Pareto front, bool [n]; larger is better in both [n].

    A point is on it when no other is at least as good in both and better in one; equal points
    are on it together. A point with a NaN never is.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    known = np.flatnonzero(~(np.isnan(first) | np.isnan(second)))
    on = np.zeros(first.shape, bool)
    best, level = -np.inf, np.inf  # highest `second` so far, and the `first` it was reached at
    for index in known[np.lexsort((-second[known], -first[known]))]:
        if second[index] > best:
            best, level = second[index], first[index]
            on[index] = True
        else:
            on[index] = second[index] == best and first[index] == level
    return on
