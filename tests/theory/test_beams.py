"""Steps and rounds of speculative beam search against rounds that are played."""

from __future__ import annotations

import numpy as np
import pytest

from specjax.theory.beams import all_stand, best_length, expected_rounds, expected_steps

STANDS = np.array([0.7, 0.4, 0.9])


def play_rounds(stands: np.ndarray, steps: int, texts: int) -> np.ndarray:
    """Rounds [texts] of texts of so many steps."""
    draws = np.random.default_rng(0).random
    rounds, left = np.zeros(texts), np.full(texts, steps)
    while (left > 0).any():
        rounds += left > 0
        left -= 1 + np.cumprod(draws((texts, len(stands))) < stands, axis=1).sum(axis=1)
    return rounds


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_rounds_are_those_that_are_played(steps):
    rounds = play_rounds(STANDS, steps, 40_000)
    error = rounds.std() / np.sqrt(len(rounds))
    assert abs(rounds.mean() - expected_rounds(STANDS, steps)) <= 4 * error + 1e-9


def test_long_texts_take_the_expected_steps_in_a_round():
    assert expected_steps(STANDS) == pytest.approx(1 + 0.7 + 0.28 + 0.252)
    assert 4000 / expected_rounds(STANDS, 4000) == pytest.approx(expected_steps(STANDS), rel=1e-3)


def test_drafts_that_always_stand_give_whole_rounds_and_no_drafts_plain_search():
    for steps in (1, 3, 4, 9):
        assert expected_rounds(np.ones(2), steps) == -(-steps // 3)
        assert expected_rounds([], steps) == steps
    assert expected_rounds(STANDS, 0) == 0.0


def test_all_of_many_hypotheses_stand_seldom():
    assert all_stand(0.7, 4) == pytest.approx(0.2401)
    np.testing.assert_allclose(all_stand([0.5, 1.0], [2, 100]), [0.25, 1.0])


def test_the_best_length_weighs_steps_against_nodes():
    free, dear = np.ones(4), np.array([1.0, 1.9, 2.8, 3.7])
    assert best_length(STANDS, 0.0, free) == 3
    assert best_length(STANDS, 0.05, dear) == 0
    assert best_length([0.9, 0.0], 0.05, [1.0, 1.1, 1.2]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_steps([1.5]), "it must be between 0 and 1"),
        (lambda: expected_rounds(STANDS, -1), "steps is -1"),
        (lambda: all_stand(0.5, 0), "beams is 0; it must be a whole number of at least 1"),
        (lambda: best_length(STANDS, 0.1, [1.0]), "reading has 1 times; it must have 4"),
    ],
)
def test_impossible_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
