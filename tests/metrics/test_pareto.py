"""The Pareto front against the definition, word by word."""

from __future__ import annotations

import numpy as np
import pytest

from specjax.metrics.statistics import front


def brute_force(first: np.ndarray, second: np.ndarray) -> list[bool]:
    """On the front: known, and no other point is as good in both and better in one."""
    points = list(zip(first, second, strict=True))
    return [
        not np.isnan([a, b]).any()
        and not any(c >= a and d >= b and (c > a or d > b) for c, d in points)
        for a, b in points
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_what_nothing_else_beats(seed):
    draw = np.random.default_rng(seed)
    # Few levels, so that ties in one or both coordinates are common.
    first, second = draw.integers(0, 6, (2, 30)).astype(float)
    first[draw.random(30) < 0.1] = np.nan
    assert front(first, second).tolist() == brute_force(first, second)


def test_equal_points_share_the_front():
    assert front([1, 1, 0], [2, 2, 2]).tolist() == [True, True, False]


def test_nothing_has_no_front():
    assert front([], []).tolist() == []
