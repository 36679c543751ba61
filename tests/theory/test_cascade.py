"""Chen et al. (2024): Table 1, the theorems against brute force, walltime improvement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specjax.theory.cascade import (
    MODEL_MILLIONS,
    PREVIOUS_WORK_COSTS,
    ewif,
    ewif_gradient,
    horizontal_ewif,
    optimal_horizontal,
    relative_costs,
    reviewed_tokens_transform,
    standardized_walltime_improvement,
    vertical_ewif,
)
from specjax.theory.speculative import (
    expected_tokens,
    optimal_draft_length,
    walltime_improvement,
)

# What the rounded inputs of Table 1 allow (docs/methods/cascade.md, "Reference numbers").
TOLERANCE = 0.01
SMALL, BASE = 77 / 11_300, 250 / 11_300
# Greedy acceptance rates of (base, small); lengths of both stages; EWIF of small, base, cascade.
TABLE_1 = {
    "cnndm": ((0.73, 0.65), (5, 3), (8, 9), (2.96, 2.65), 3.03),
    "ende": ((0.80, 0.75), (5, 8), (11, 12), (3.75, 3.61), 3.93),
}


@pytest.mark.parametrize("alphas, stages, alone, singles, cascade", TABLE_1.values(), ids=TABLE_1)
def test_table_1_is_reproduced(alphas, stages, alone, singles, cascade):
    costs = (BASE, SMALL)
    values = walltime_improvement(alphas, alone, costs)
    np.testing.assert_allclose(values, singles, atol=TOLERANCE)
    np.testing.assert_array_equal(optimal_draft_length(alphas, costs, 30), alone)
    value = horizontal_ewif(alphas, costs, stages)
    assert value == pytest.approx(cascade, abs=TOLERANCE)
    assert value > max(values)


def test_the_best_cascades_of_table_1():
    # CNN/DM's printed 5/3 is not quite the optimum of its rounded inputs; En-De's 5/8 is.
    lengths, value = optimal_horizontal((0.73, 0.65), (BASE, SMALL), 30)
    assert lengths == (5, 5)
    assert value == pytest.approx(3.04, abs=0.005)
    assert optimal_horizontal((0.80, 0.75), (BASE, SMALL), 30)[0] == (5, 8)


def test_a_constant_draft_is_theorem_3_8():
    for alpha, n, cost in itertools.product((0.0, 0.6, 1.0), (1, 4, 9), (0.0, 0.1)):
        value = ewif(np.full(n, alpha), np.full(n, cost))
        assert value == pytest.approx(walltime_improvement(alpha, n, cost), rel=1e-12)


def test_horizontal_stages_are_positions_repeated():
    rng = np.random.default_rng(0)
    for lengths in itertools.product((0, 1, 4), repeat=3):
        alphas, costs = rng.random(3), rng.random(3)
        expected = ewif(np.repeat(alphas, lengths), np.repeat(costs, lengths))
        assert horizontal_ewif(alphas, costs, lengths) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zero", [False, True])
def test_the_gradient_is_that_of_finite_differences(zero):
    rng = np.random.default_rng(1)
    alphas, costs = rng.uniform(0.1, 0.9, (2, 6)), rng.random((2, 6))
    if zero:
        alphas[0, 2] = 0.0
    step = 1e-6
    # EWIF is affine in each acceptance, so a one-sided difference has rounding error only.
    moved = alphas[:, None] + step * np.eye(6)
    numeric = (ewif(moved, costs[:, None]) - ewif(alphas, costs)[:, None]) / step
    np.testing.assert_allclose(ewif_gradient(alphas, costs), numeric, atol=1e-8)


def test_the_gradient_of_the_first_and_last_position():
    alphas, costs = np.array([0.9, 0.8, 0.7]), np.array([0.1, 0.1, 0.2])
    expected = [(1 + 0.8 + 0.8 * 0.7) / 1.4, (0.9 + 0.9 * 0.7) / 1.4, 0.9 * 0.8 / 1.4]
    np.testing.assert_allclose(ewif_gradient(alphas, costs), expected)


@pytest.mark.parametrize("seed", range(8))
def test_no_allocation_beats_the_optimal_one(seed):
    """Theorem 4.4: not all 2^n assignments in any order, nor random mixtures of two drafters."""
    rng = np.random.default_rng(seed)
    alphas = rng.uniform(0.3, 0.95, 2)
    costs = rng.uniform(0.0, 0.15, 2)
    longest = 8
    lengths, best = optimal_horizontal(alphas, costs, longest)
    order = np.argsort(-alphas)
    assert horizontal_ewif(alphas[order], costs[order], np.array(lengths)[order]) == best
    brute = 1.0
    for n in range(1, longest + 1):
        f = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
        f = np.concatenate([f, rng.random((500, n))])
        alpha = f * alphas[0] + (1 - f) * alphas[1]
        cost = f * costs[0] + (1 - f) * costs[1]
        values = ewif(alpha, cost)
        assert np.max(values) <= best + 1e-12
        brute = max(brute, np.max(values[: 2**n]))
    assert brute == pytest.approx(best, rel=1e-12)


def test_three_drafters_are_allocated_as_by_brute_force():
    alphas, costs = np.array([0.6, 0.9, 0.75]), np.array([0.0, 0.12, 0.03])
    lengths, best = optimal_horizontal(alphas, costs, 6)
    brute = max(
        float(ewif(alphas[list(who)], costs[list(who)]))
        for n in range(1, 7)
        for who in itertools.product(range(3), repeat=n)
    )
    assert best == pytest.approx(brute, rel=1e-12)
    assert all(lengths) and sum(lengths) == 6  # a case in which every drafter has a place


def test_useless_drafters_are_not_used():
    assert optimal_horizontal((0.1, 0.05), (0.3, 0.2), 5) == ((0, 0), 1.0)


@pytest.mark.parametrize("z", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_the_transform_of_reviewed_tokens_is_its_definition(z, alpha, length):
    distribution = [(1 - alpha) * alpha**j for j in range(length)] + [alpha**length]
    direct = sum(mass * z ** (j + 1) for j, mass in enumerate(distribution))
    assert reviewed_tokens_transform(z, alpha, length) == pytest.approx(direct, abs=1e-14)


def test_the_vertical_form_is_the_papers():
    alpha, inner, n, k, c1, c2 = 0.8, 0.6, 3, 4, 0.05, 0.01
    az = inner * alpha
    phi = (1 - inner) * alpha * (1 - az**k) / (1 - az) + inner**k * alpha ** (k + 1)
    paper = (1 - alpha * phi**n) / ((1 - alpha) * (1 + n * c1 + n * k * c2))
    assert vertical_ewif(alpha, inner, n, k, c1, c2) == pytest.approx(paper, rel=1e-13)


def test_limits_of_the_vertical_form():
    # Every inner draft rejected, or none proposed: the big drafter works token by token.
    assert vertical_ewif(0.8, 0.0, 4, 3, 0.1, 0.0) == pytest.approx(
        walltime_improvement(0.8, 4, 0.1)
    )
    assert vertical_ewif(0.8, 0.5, 4, 0, 0.1, 0.2) == pytest.approx(
        walltime_improvement(0.8, 4, 0.1)
    )
    # Every inner draft accepted: n (k + 1) tokens in n runs.
    time = 1 + 2 * 0.1 + 2 * 3 * 0.01
    assert vertical_ewif(0.8, 1.0, 2, 3, 0.1, 0.01) == pytest.approx(expected_tokens(0.8, 8) / time)
    assert vertical_ewif(1.0, 1.0, 2, 3, 0.1, 0.01) == pytest.approx(9 / time)
    assert vertical_ewif(0.0, 0.5, 2, 3, 0.1, 0.01) == pytest.approx(1 / time)
    assert vertical_ewif(0.7, 0.5, 0, 3, 0.1, 0.01) == 1.0
    near, at = (vertical_ewif(a, 0.6, 3, 4, 0.1, 0.0) for a in (1 - 1e-10, 1.0))
    assert near == pytest.approx(at, rel=1e-8)


def test_walltime_improvement_by_sizes_by_previous_work_and_by_measurement():
    calls = {"xxl": 10, "base": 20, "small": 50}
    sizes = relative_costs(MODEL_MILLIONS, "xxl")
    measured = relative_costs({"xxl": 8.0, "base": 2.0, "small": 0.4}, "xxl")
    assert measured == {"xxl": 1.0, "base": 0.25, "small": pytest.approx(0.05)}
    costs = [[prices[name] for name in calls] for prices in (sizes, PREVIOUS_WORK_COSTS, measured)]
    values = standardized_walltime_improvement(40, list(calls.values()), costs)
    expected = [10 + 20 * 220 / 11_300 + 50 * 60 / 11_300, 10 + 0.8 + 1.0, 10 + 5 + 2.5]
    np.testing.assert_allclose(values, 40 / np.array(expected))


def test_autoregressive_decoding_improves_nothing():
    assert standardized_walltime_improvement(25, [25], [1.0]) == 1.0


def test_walltime_improvement_of_plain_rounds_is_theorem_3_8():
    rounds, length, alpha, cost = 100, 5, 0.7, 0.04
    tokens = rounds * expected_tokens(alpha, length)
    value = standardized_walltime_improvement(tokens, [rounds, rounds * length], [1.0, cost])
    assert value == pytest.approx(walltime_improvement(alpha, length, cost))


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: ewif([0.5, 1.2], [0, 0]), "alphas is 1.2; it must be between 0 and 1"),
        (lambda: horizontal_ewif([0.5], [0.1], [-1]), "lengths is -1; it must be a whole number"),
        (lambda: vertical_ewif(0.5, 0.5, 1, 1, -1, 0), "cost is -1; it must be finite"),
        (lambda: relative_costs({"a": 1.0}, "b"), "target is 'b'; it must be one of a"),
        (lambda: relative_costs({"a": 0.0}, "a"), "the price of a is 0; it must be finite"),
        (
            lambda: standardized_walltime_improvement(1, [0], [1]),
            "the cost of all calls is 0; it must be finite and above 0",
        ),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(sentence)
