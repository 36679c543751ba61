"""Probabilities, draws and distances of nearly certain models beside double precision."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extremes import (
    DIGITS,
    LARGE,
    ROUNDING,
    SMALL,
    TEMPERATURES,
    certain,
    exact_distribution,
    pairs,
    round_probs,
)
from slow_cases import some_slow

from specjax.contracts.draft import Draft
from specjax.models import vocabularies
from specjax.sampling import BLOCK, _find_quantile, adjust, make_sampling
from specjax.verification import typical
from specjax.verification.distances import LOGITS, kl, total_variation

SETTINGS = ({}, {"top_k": 3}, {"top_p": 0.9}, {"top_p": 0.999999}, {"top_k": 50, "top_p": 0.5})


@pytest.mark.parametrize("size", some_slow((2, 6, 1000, LARGE), 6))
def test_adjusted_probabilities_are_those_of_double_precision(size):
    """Small ones relative to themselves; a cut may fall on another token of no more than 1e-6."""
    for digits, temperature in itertools.product((3, 7, 12), TEMPERATURES):
        logits = temperature * np.log(np.maximum(certain(size, digits, digits), 1e-300))
        logits = logits.astype(np.float32)
        exact = logits.astype(np.float64) / np.float32(temperature)
        exact = exact_distribution(np.exp(exact - exact.max()))
        for settings in SETTINGS:
            found = np.asarray(adjust(jnp.asarray(logits), make_sampling(temperature, **settings)))
            kept = found > 0
            expected = exact_distribution(np.where(cut(exact, **settings), exact, 0.0))
            assert np.abs(found - expected).sum() < 2e-6 + 20 * ROUNDING * (size == LARGE)
            both = kept & (expected > 0)
            np.testing.assert_allclose(found[both], expected[both], rtol=5e-5)


def cut(probs: np.ndarray, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """What top-k and then top-p leave."""
    order = np.argsort(-probs, kind="stable")
    order = order[: top_k or None]
    ranked = exact_distribution(probs[order])
    before = np.concatenate([[0.0], np.cumsum(ranked)[:-1]])
    kept = np.zeros(len(probs), bool)
    kept[order[before < top_p]] = True
    return kept


def drawn_distribution(weights: np.ndarray) -> np.ndarray:
    """How many of the 2^23 uniform numbers lead to each of weights [N], by bisection."""
    size = len(weights)
    rows, place = jnp.broadcast_to(jnp.asarray(weights), (size, size)), np.arange(size)
    low, high = np.zeros(size, int), np.full(size, 2**23)  # of those that lead no further
    while np.any(low < high):
        middle = (low + high) // 2
        found = np.asarray(reached(rows, jnp.asarray(middle / 2**23, jnp.float32)))
        low, high = np.where(found > place, low, middle + 1), np.where(found > place, middle, high)
        low = np.minimum(low, high)
    return np.diff(low, prepend=0) / 2**23


reached = jax.jit(_find_quantile)


@pytest.mark.parametrize("size", [6, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_draws_are_as_likely_as_their_weights_up_to_the_grain_of_uniform_numbers(size):
    """Tokens of a small vocabulary and blocks of a large one, for a first child and the next."""
    for digits in (3, 6, 9, 12):
        first = round_probs(certain(size, digits, digits), 1.0)
        for weights in (first, np.where(np.arange(size) == 1, np.float32(0.0), first)):
            if size > BLOCK:
                whole = np.pad(weights, (0, -size % BLOCK)).reshape(-1, BLOCK)
                weights = np.asarray(jnp.sum(whole, axis=-1))
            np.testing.assert_allclose(
                drawn_distribution(weights), exact_distribution(weights), rtol=0, atol=3e-7
            )


def test_what_two_vocabularies_share_is_normalized_however_little_it_is():
    """The drafter is certain of a token that the target does not have."""
    places = np.array([0, 2, 3, 5, 6])  # of six tokens, the last one of none
    for digits, temperature in itertools.product(DIGITS, TEMPERATURES):
        probs = certain(6, digits, digits)
        logits = jnp.asarray(temperature * np.log(probs), jnp.float32)
        known = vocabularies._to_target_ids({"places": jnp.asarray(places)}, logits)
        found = adjust(known, make_sampling(temperature))
        np.testing.assert_allclose(found[:4], exact_distribution(probs[places[:4]]), rtol=5e-5)
        assert found[4] == 0.0


def test_distances_to_a_certain_drafter_are_those_of_double_precision():
    for q, p in pairs(sizes=(6,)):
        q, p = np.maximum(q, 1e-30), np.maximum(p, 1e-30)
        draft = Draft.chain(jnp.zeros((1, 1), jnp.int32), aux={LOGITS: jnp.log(q)[None, None]})
        logits = jnp.log(p)[None, None]
        q, p = exact_distribution(q), exact_distribution(p)
        np.testing.assert_allclose(
            total_variation(draft, logits), np.abs(p - q).sum() / 2, atol=1e-6
        )
        np.testing.assert_allclose(
            kl(draft, logits), (q * np.log(q / p)).sum(), rtol=1e-5, atol=1e-6
        )


def test_typical_acceptance_knows_a_small_entropy():
    for _, p in pairs(sizes=(*SMALL, 1000)):
        exact = exact_distribution(p)
        entropy = -np.sum(exact[exact > 0] * np.log(exact[exact > 0]))
        found = jax.jit(typical.compute_typical_threshold)(
            jnp.asarray(p), jnp.float32(1.0), jnp.float32(0.3)
        )
        np.testing.assert_allclose(found, min(1.0, 0.3 * np.exp(-entropy)), rtol=1e-5)
