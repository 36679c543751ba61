"""95% intervals over examples, by drawing them anew (Efron 1979; Koehn 2004 for BLEU).

What is compared is drawn together: the same examples for both sides, so that easy and hard ones
cancel.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 2000
LEAST = 10
"""Examples; the spread of fewer says little."""

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
    """Of every sample [RESAMPLES], from the seconds and tokens [units] of all units."""
    return drawn @ seconds / np.maximum(drawn @ tokens, 1)
