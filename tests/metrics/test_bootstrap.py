"""Intervals over examples and repetitions, and metrics from what each output adds."""

from __future__ import annotations

import numpy as np
import pytest

from specjax.contracts.registry import METRICS
from specjax.metrics.metric import get_metric
from specjax.metrics.statistics import (
    LEAST,
    RESAMPLES,
    draws,
    interval,
    over_repetitions,
    seconds_per_token,
)

OUTPUTS = ["the cat sat on the mat today", "dogs run", "B", "2 + 2 = 4", ""]
REFERENCES = [("the cat sat on a mat today", "a cat"), "dogs run in the green park", "B", "4", "x"]


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS[name].cls.scores])
def test_scores_are_made_of_what_each_output_adds(name):
    metric = get_metric(name)
    parts = metric.statistics(OUTPUTS, REFERENCES)
    assert len(parts) == len(OUTPUTS)
    found = metric.of_statistics(parts.sum(0), len(OUTPUTS))
    assert found == pytest.approx(metric(OUTPUTS, REFERENCES))
    twice = metric.of_statistics(np.array([2, 0, 1, 1, 1]) @ parts, 5)
    drawn = [0, 0, 2, 3, 4]
    again = metric([OUTPUTS[i] for i in drawn], [REFERENCES[i] for i in drawn])
    assert twice == pytest.approx(again)


def test_a_draw_has_as_many_units_and_depends_on_the_seed_alone():
    drawn = draws(LEAST, 3)
    assert drawn.shape == (RESAMPLES, LEAST) and (drawn.sum(1) == LEAST).all()
    assert (drawn == draws(LEAST, 3)).all() and (drawn != draws(LEAST, 4)).any()
    assert draws(LEAST - 1, 3) is None


def test_the_interval_of_a_mean_is_that_of_the_normal_law():
    values = np.random.default_rng(0).normal(5.0, 2.0, 400)
    low, high = interval(draws(400, 0) @ values / 400)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


def test_seconds_per_token_are_ratios_of_sums():
    drawn = np.array([[2, 0], [1, 1]])
    found = seconds_per_token(drawn, np.array([1.0, 6.0]), np.array([2, 4]))
    assert found.tolist() == [0.5, 7 / 6]


def test_repetitions_have_students_interval():
    low, high = over_repetitions(np.array([1.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 12.7062, 2 + 12.7062), rel=1e-4)
