"""The closed forms against rounds played token by token."""

from __future__ import annotations

import numpy as np
import pytest

from specjax.theory.cascade import ewif, horizontal_ewif, vertical_ewif
from specjax.theory.simulate import Estimate, simulate, simulate_vertical
from specjax.theory.speculative import (
    expected_tokens,
    expected_tokens_by_position,
    walltime_improvement,
)

ROUNDS = 200_000
Z = 4.0  # about 40 fixed-seed comparisons: right formulas fail one with probability 0.003


def z_score(estimate: Estimate, value: float) -> float:
    return abs(estimate.mean - value) / estimate.standard_error


@pytest.mark.parametrize("alpha, length", [(0.3, 1), (0.6, 4), (0.9, 10)])
@pytest.mark.parametrize("cost, verification", [(0.0, 1.0), (0.05, 1.4)])
def test_rounds_of_one_drafter(alpha, length, cost, verification):
    rng = np.random.default_rng(length)
    alphas, costs = np.full(length, alpha), np.full(length, cost)
    found = simulate(rng, alphas, costs, ROUNDS, verification)
    assert z_score(found.tokens, expected_tokens(alpha, length)) < Z
    speedup = walltime_improvement(alpha, length, cost, verification)
    assert z_score(found.improvement, speedup) < Z
    # The bounds are worth something: half a percent more acceptance is noticed.
    assert found.tokens.standard_error < 0.005 * found.tokens.mean
    assert z_score(found.tokens, expected_tokens(alpha + 0.02, length)) > Z


def test_rounds_whose_acceptance_differs_by_position():
    alphas, costs = np.array([0.9, 0.5, 0.8, 0.3]), np.array([0.1, 0.0, 0.02, 0.0])
    found = simulate(np.random.default_rng(5), alphas, costs, ROUNDS)
    assert z_score(found.tokens, expected_tokens_by_position(alphas)) < Z
    assert z_score(found.improvement, ewif(alphas, costs)) < Z
    assert z_score(found.tokens, expected_tokens_by_position(alphas[::-1])) > Z


def test_rounds_of_a_horizontal_cascade():
    alphas, costs, lengths = (0.85, 0.6), (0.1, 0.01), (3, 5)
    found = simulate(
        np.random.default_rng(6), np.repeat(alphas, lengths), np.repeat(costs, lengths), ROUNDS
    )
    assert z_score(found.improvement, horizontal_ewif(alphas, costs, lengths)) < Z


@pytest.mark.parametrize("alpha", [0.4, 0.8, 0.95])
@pytest.mark.parametrize("inner, steps, length", [(0.7, 1, 4), (0.5, 3, 2), (0.9, 2, 5)])
def test_rounds_of_a_vertical_cascade(alpha, inner, steps, length):
    found = simulate_vertical(
        np.random.default_rng(7),
        alpha=alpha,
        inner_alpha=inner,
        steps=steps,
        length=length,
        cost=0.05,
        inner_cost=0.01,
        rounds=ROUNDS,
    )
    value = vertical_ewif(alpha, inner, steps, length, 0.05, 0.01)
    assert z_score(found.improvement, value) < Z
    other = vertical_ewif(alpha - 0.02, inner, steps, length, 0.05, 0.01)
    assert z_score(found.improvement, other) > Z


@pytest.mark.parametrize("alpha, tokens", [(0.0, 1.0), (1.0, 7.0)])
def test_certain_outcomes_have_no_error(alpha, tokens):
    found = simulate(np.random.default_rng(0), np.full(6, alpha), np.zeros(6), 100)
    assert found.tokens == found.improvement == Estimate(tokens, 0.0)


def test_a_round_without_a_draft_gives_one_token():
    found = simulate(np.random.default_rng(0), np.zeros(0), np.zeros(0), 10)
    assert found.improvement == Estimate(1.0, 0.0)


def test_the_generator_decides_the_rounds():
    first, again, other = (
        simulate(np.random.default_rng(s), np.full(3, 0.5), np.zeros(3), 1000) for s in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_too_few_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds is 1; it must be a whole number of at least 2"):
        simulate(np.random.default_rng(0), np.zeros(1), np.zeros(1), 1)
