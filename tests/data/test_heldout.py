"""A random sample of a stream."""

from __future__ import annotations

import numpy as np
import pytest

from specjax.data.sources import hold_out
from specjax.runtime.errors import UserError


def test_every_row_is_held_out_or_passed_on_once():
    held, others = hold_out(iter(range(100)), 10, seed=0)
    rest = list(others)
    assert len(held) == 10
    assert sorted(held + rest) == list(range(100))
    again, others = hold_out(range(100), 10, seed=0)
    assert list(others) == rest and again == held


def test_every_row_is_equally_likely_to_be_held_out():
    """5,000 samples of 3 of 12: four standard errors of a share of 1/4 are 0.0245."""
    times = np.zeros(12)
    for seed in range(5000):
        held, others = hold_out(range(12), 3, seed)
        assert len(list(others)) == 9
        times[held] += 1
    np.testing.assert_allclose(times / 5000, 0.25, atol=0.0245)


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_a_sample_that_leaves_nothing_is_refused(rows):
    _, others = hold_out(range(rows), 3, seed=0)
    with pytest.raises(UserError, match=f"heldout is 3; .* which are {rows}"):
        list(others)
