"""Confidence intervals over examples, and Pareto fronts of two figures.

Intervals are of 95%, by resampling (Efron 1979; Koehn 2004 for BLEU). Both sides of a comparison
use the same resampled examples, so that easy and hard ones cancel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

RESAMPLES = 2000
LEAST = 10
"""Fewest examples for an interval."""

PERCENTILES = (2.5, 97.5)


def draws(units: int, seed: int) -> np.ndarray | None:
    """How often each unit is in each sample, int [RESAMPLES, units]; None for too few units."""
    if units < LEAST:
        return None
    return np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), RESAMPLES)


def interval(samples: np.ndarray) -> tuple[float, float]:
    """The percentile interval of a figure over the samples [RESAMPLES]."""
    low, high = np.percentile(samples, PERCENTILES)
    return float(low), float(high)


def over_repetitions(values: np.ndarray) -> tuple[float, float]:
    """Student's 95% interval of the mean of two or more repetitions, as under several seeds."""
    reach = stdtrit(len(values) - 1, 1 - PERCENTILES[0] / 100)
    half = float(reach * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()) - half, float(values.mean()) + half


def seconds_per_token(drawn: np.ndarray, seconds: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Seconds per token of every sample [RESAMPLES], from seconds and tokens [units]."""
    return drawn @ seconds / np.maximum(drawn @ tokens, 1)


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
