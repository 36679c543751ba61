"""Temperatures of a confidence head: known ones are found, and the error falls on other drafts."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import expit

from specjax.models.correction import Correction
from specjax.training.calibration import (
    GRID,
    Confidences,
    calibration_error,
    fit_temperatures,
    measure_calibration,
    scale,
)

TEMPERATURES = (2.0, 0.5, 1.0, 3.0)
"""Of the synthetic drafts below."""


def synthetic(drafts: int, seed: int = 0) -> Confidences:
    """Confidences whose logits are too large by TEMPERATURES, and outcomes by the right ones."""
    rng = np.random.default_rng(seed)
    logits = 1.0 + rng.normal(size=(drafts, len(TEMPERATURES)))
    accepted = rng.random(logits.shape) < expit(logits)
    return Confidences(expit(logits * TEMPERATURES), accepted, np.ones_like(accepted))


def test_known_temperatures_are_found():
    found = fit_temperatures(synthetic(40_000))
    np.testing.assert_allclose(found, TEMPERATURES, rtol=0.15)


def test_the_error_falls_at_every_place_of_other_drafts():
    temperatures, others = fit_temperatures(synthetic(20_000)), synthetic(20_000, seed=1)
    before, after = measure_calibration(others), measure_calibration(others, temperatures)
    assert all(late < early for early, late in zip(before, after, strict=True))
    assert np.mean(after) < np.mean(before) / 5
    assert measure_calibration(others, (1.0,) * len(TEMPERATURES)) == before


def test_a_calibrated_head_keeps_its_confidence():
    rng = np.random.default_rng(2)
    confidence = rng.random((5_000, 2))
    found = fit_temperatures(Confidences(confidence, confidence, confidence >= 0))
    assert found == (1.0, 1.0)  # the probabilities themselves are the outcomes: no error


def test_places_that_do_not_count_change_nothing():
    whole = synthetic(3_000)
    counted = np.arange(len(TEMPERATURES)) < np.array([[4], [2]] * 1_500)
    poisoned = Confidences(
        np.where(counted, whole.confidence, 0.3), np.where(counted, whole.accepted, 0.0), counted
    )
    kept = whole.select(counted[:, -1])
    assert fit_temperatures(poisoned)[2:] != fit_temperatures(whole)[2:]
    assert measure_calibration(poisoned)[3] == measure_calibration(kept)[3]
    nothing = Confidences(whole.confidence, whole.accepted, np.zeros_like(whole.counted))
    assert fit_temperatures(nothing) == (1.0,) * 4
    assert measure_calibration(nothing) == (0.0,) * 4


def test_the_error_is_the_weighted_distance_of_bins():
    """Two bins: 0.9 predicted, half of it happened; 0.1 predicted, none of it happened."""
    chance, happened = np.array([0.9] * 4 + [0.1] * 4), np.array([1, 1, 0, 0] + [0] * 4)
    assert calibration_error(chance, happened) == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)
    assert calibration_error(np.ones(3), np.ones(3)) == 0.0


def test_drafting_divides_the_same_logits():
    """Places beyond the temperatures have the last one; without temperatures nothing changes."""
    confidence = np.float32([[0.0, 1e-6, 0.3], [0.5, 0.9, 1.0]])
    correction = Correction("markov", 4, confidence=True, temperatures=TEMPERATURES[:2])
    for place, temperature in ((0, 2.0), (1, 0.5), (5, 0.5)):
        got = jax.jit(correction.calibrate)(confidence, place)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(got, scale(confidence, temperature), rtol=1e-4)
    assert Correction("markov", 4).calibrate(confidence, 0) is confidence
    assert 1.0 in GRID
