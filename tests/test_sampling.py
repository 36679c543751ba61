"""Adjusted distributions against the definition written out in float64."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scripted import adjust_probabilities
from slow_cases import some_slow

from specjax.contracts.distribution import draw_without_replacement
from specjax.decoding.strategy import DRAWN
from specjax.sampling import (
    BLOCK,
    CUTS,
    Sampling,
    adjust,
    argmax,
    compute_entropy,
    draw,
    find_largest,
    make_sampling,
)

SETTINGS = [
    (1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.0, 1, 1.0), (1.0, 0, 0.6),
    (0.7, 5, 0.8), (1.0, 100, 1.0), (1.0, 0, 1e-6),
    (1.5, 0, 1.0, 0.2), (0.7, 0, 1.0, 1.0), (1.0, 0, 1.0, 0.0, 0.5), (1.0, 0, 1.0, 0.0, 1e-6),
    (1.0, 0, 1.0, 0.0, 1.0, 0.1), (1.0, 0, 1.0, 0.0, 1.0, 0.99),
    (1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.3), (1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.999),
    (1.3, 7, 0.97, 0.02, 0.9, 0.03, 0.2),
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_adjust_equals_the_definition(settings):
    logits = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32) * 2
    expected = [adjust_probabilities(row, *settings) for row in logits]
    distribution = adjust(jnp.asarray(logits), under(settings))
    np.testing.assert_allclose(distribution, expected, atol=2e-6)


def under(settings) -> Sampling:
    """What a strategy's values, in the order of its fields, are to sampling."""
    return make_sampling(**dict(zip(DRAWN, settings, strict=False)))


def test_entropy_is_in_nats_and_finite_where_tokens_are_forbidden():
    logits = jnp.array([[0.0, 0.0, -jnp.inf, 0.0], [2.0, -jnp.inf, -jnp.inf, -jnp.inf]])
    np.testing.assert_allclose(compute_entropy(logits), [np.log(3), 0.0], atol=1e-6)


@pytest.mark.parametrize("name", CUTS)
def test_every_cut_changes_the_law_and_at_its_bound_is_not_there(name):
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(20, 8)) * 2)
    off = DRAWN[name].default
    assert not make_sampling(**{name: off}).cuts
    distribution, free = (
        adjust(logits, make_sampling(**{name: 0.3})),
        adjust(logits, make_sampling()),
    )
    assert np.any(distribution == 0.0) and np.all(free > 0.0)


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_of_what_is_cut_already_is_finite(name):
    """Settings forbid tokens before; a sure law has nothing but one token."""
    logits = jnp.array([[0.0, -jnp.inf, 1.0, -jnp.inf], [-jnp.inf, 2.0, -jnp.inf, -jnp.inf]])
    distribution = adjust(logits, make_sampling(**{name: 0.9}))
    np.testing.assert_allclose(distribution.sum(axis=1), 1.0, atol=1e-6)
    assert np.all(distribution[0, 1::2] == 0.0) and distribution[1].tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", *CUTS])
def test_other_values_of_a_setting_compile_nothing(name):
    compiled, logits = jax.jit(functools.partial(adjust)), jnp.zeros((2, 8))
    for value in (2, 3, 100, 10**12) if name == "top_k" else (0.2, 0.5):
        compiled(logits, make_sampling(**{name: value}))
    assert compiled._cache_size() == 1


def test_a_top_k_beyond_all_vocabularies_leaves_all_tokens():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8)))
    np.testing.assert_array_equal(
        adjust(logits, make_sampling(top_k=10**12)), adjust(logits, make_sampling())
    )


@pytest.mark.parametrize("settings", [(1.0, 2, 1.0), (1.0, 0, 0.3)])
def test_ties_go_to_the_lower_id(settings):
    logits = jnp.zeros((1, 6))
    distribution = adjust(logits, make_sampling(*settings))
    np.testing.assert_allclose(
        distribution[0], adjust_probabilities(np.zeros(6), *settings), atol=1e-6
    )
    assert distribution[0, 0] > 0 and distribution[0, 5] == 0


def test_temperature_zero_is_the_one_hot_argmax_with_ties_to_the_lowest():
    distribution = adjust(jnp.array([[1.0, 3.0, 3.0]]), make_sampling(0.0))
    assert distribution.tolist() == [[0.0, 1.0, 0.0]]


def test_argmax_equals_numpys_with_ties():
    logits = np.random.default_rng(1).integers(0, 4, (200, 7)).astype(np.float32)
    assert np.array_equal(argmax(jnp.asarray(logits)), logits.argmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
def test_long_rows_with_ties_are_adjusted_by_the_definition(settings):
    """Logits on a grid; some at -inf, as generation settings forbid tokens."""
    logits = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32).round(1) * 2
    logits[1, ::7] = -np.inf
    expected = [adjust_probabilities(row, *settings) for row in logits]
    distribution = adjust(jnp.asarray(logits), under(settings))
    np.testing.assert_allclose(distribution, expected, atol=2e-6)


SEARCHED = (8000, *(pytest.param(n, marks=pytest.mark.slow) for n in (1000, 1024, 1031, 51865)))
"""Vocabularies in blocks of several widths, one with too few entries for them, and a prime one."""


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("vocabulary", SEARCHED)
def test_the_largest_are_those_of_a_sort_with_ties(vocabulary, count):
    logits = np.random.default_rng(2).normal(size=(2, 2, vocabulary)).astype(np.float32).round(1)
    logits[0, 0], logits[0, 1], logits[1, 0, 5:] = 0.0, -np.inf, -np.inf
    found = find_largest(jnp.asarray(logits), count)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, np.argsort(-logits, axis=-1, kind="stable")[..., :count])


def test_bfloat16_logits_are_adjusted_in_float32():
    logits = jnp.array([[1.0, 2.0, 3.0]], jnp.bfloat16)
    assert adjust(logits, make_sampling(1.0)).dtype == jnp.float32


@pytest.mark.parametrize(
    "vocabulary", some_slow((5, BLOCK, BLOCK + 1, 3 * BLOCK - 2), BLOCK, BLOCK + 1)
)
def test_draw_follows_weights_in_several_blocks(vocabulary):
    weights = np.random.default_rng(3).exponential(size=vocabulary).astype(np.float32)
    weights[::3] = 0.0
    keys = jax.random.split(jax.random.key(2), 40_000)
    drawn = draw(keys, jnp.broadcast_to(weights, (len(keys), vocabulary)))
    counts = np.bincount(drawn, minlength=vocabulary)
    assert len(counts) == vocabulary and not counts[::3].any()
    possible = weights > 0
    expected = len(keys) * weights[possible] / weights.sum()
    assert stats.chisquare(counts[possible], expected, sum_check=False).pvalue > 1e-3


def test_what_alone_has_a_weight_is_drawn_wherever_it_is():
    weights = jnp.eye(2 * BLOCK + 3)
    keys = jax.random.split(jax.random.key(1), len(weights))
    np.testing.assert_array_equal(draw(keys, weights), np.arange(len(weights)))


@pytest.mark.slow
def test_rounded_sums_never_lead_to_a_weight_of_zero():
    """Behind a large weight the sums of small ones stand still."""
    weights = jnp.zeros(4 * BLOCK).at[3].set(1.0).at[BLOCK + 7 :: 2].set(1e-9)
    keys = jax.random.split(jax.random.key(4), 20_000)
    drawn = np.asarray(draw(keys, jnp.broadcast_to(weights, (len(keys), len(weights)))))
    assert np.all(weights[drawn] > 0) and np.mean(drawn == 3) > 0.999


def test_draw_follows_its_weights_and_never_draws_weight_zero():
    weights = jnp.broadcast_to(jnp.array([0.2, 0.0, 0.6, 1.2]), (40_000, 4))
    drawn = draw(jax.random.split(jax.random.key(0), 40_000), weights)
    share = np.bincount(drawn, minlength=4) / 40_000
    np.testing.assert_allclose(share, [0.1, 0.0, 0.3, 0.6], atol=0.012)  # 5 standard errors
    assert share[1] == 0.0


@pytest.mark.slow
def test_draws_in_order_leave_out_what_was_drawn():
    """The second token's law is what the first one left."""
    distribution = np.array([0.5, 0.0, 0.3, 0.2], np.float32)
    keys = jax.random.split(jax.random.key(6), (20_000, 2))
    drawn = draw_without_replacement(keys, jnp.broadcast_to(distribution, (20_000, 2, 4)), 2)
    expected = [
        0.0
        if first == second
        else distribution[first] * distribution[second] / (1 - distribution[first])
        for first in range(4)
        for second in range(4)
    ]
    possible = np.array(expected) > 0
    for parent in range(2):
        counts = np.bincount(drawn[:, parent] @ np.array([4, 1]), minlength=16)
        assert not counts[~possible].any()
        some = 20_000 * np.array(expected)[possible]
        assert stats.chisquare(counts[possible], some, sum_check=False).pvalue > 1e-3


def test_behind_all_that_is_possible_are_the_lowest_ids():
    distribution = jnp.array([[[0.0, 0.0, 1.0, 0.0, 0.0]]])
    drawn = draw_without_replacement(jax.random.split(jax.random.key(7), (1, 1)), distribution, 4)
    assert drawn.tolist() == [[[2, 0, 1, 3]]]


@pytest.mark.parametrize(
    ("field", "settings"),
    [("temperature", (-1.0,)), ("top_k", (1.0, -1)), ("top_p", (1.0, 0, 0.0))],
)
def test_a_setting_out_of_range_is_named(field, settings):
    with pytest.raises(ValueError, match=field):
        make_sampling(*settings)
