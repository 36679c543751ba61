"""Weights of a draft's tokens by acceptance: worked numbers, places, masks, and no gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.training.weighting import dpace_weights, prefix_weights


def columns(*values: float) -> list[jax.Array]:
    return [jnp.full((1, 1), value) for value in values]


def everywhere(values) -> list[jax.Array]:
    return [jnp.ones_like(value, bool) for value in values]


def test_dpace_weights_are_those_worked_out_by_hand():
    """q = (.9, .5, .8): s = (.95, .75, .9)."""
    chances = columns(0.9, 0.5, 0.8)
    found = dpace_weights(chances, everywhere(chances), 0)
    np.testing.assert_allclose(np.ravel(found), [2.30375, 1.35375, 0.64125], rtol=1e-6)
    fixed = dpace_weights(chances, everywhere(chances), 0, 1.0)
    np.testing.assert_allclose(np.ravel(fixed), [3, 2, 1])


def test_prefix_weights_are_products_of_what_is_before():
    accepted = columns(0.9, 0.5, 0.8)
    found = prefix_weights(accepted, everywhere(accepted), 0)
    np.testing.assert_allclose(np.ravel(found), [1, 0.9, 0.45], rtol=1e-6)


def test_prefix_weights_of_total_variation_add_up_to_the_chance_of_a_rejection():
    accepted = columns(0.9, 0.5, 0.8, 0.3)
    weights = prefix_weights(accepted, everywhere(accepted), 0)
    total = sum(w * (1 - a) for w, a in zip(weights, accepted, strict=True))
    assert float(total[0, 0]) == pytest.approx(1 - 0.9 * 0.5 * 0.8 * 0.3)


@pytest.mark.parametrize("weigh", [prefix_weights, dpace_weights])
def test_a_draft_is_one_place_on_with_each_token_where_places_are_the_texts(weigh):
    """Token k of the draft that begins at t is at t + k: a diagonal."""
    rng = np.random.default_rng(0)
    of_drafts = rng.uniform(0.1, 0.9, size=(3, 5))  # token, place of the first
    flat = [jnp.float32(row)[None] for row in of_drafts]
    apart = [jnp.float32(np.pad(row, (k, 0))[:5])[None] for k, row in enumerate(of_drafts)]
    inside = [jnp.arange(5)[None] >= k for k in range(3)]
    ends = [jnp.arange(5)[None] + k < 5 for k in range(3)]
    expected = weigh(flat, ends, 0)
    found = weigh(apart, inside, 1)
    for k in range(3):
        np.testing.assert_allclose(found[k][0, k:], expected[k][0, : 5 - k], rtol=1e-6)


def test_what_is_masked_neither_counts_nor_lessens():
    chances = columns(0.9, 0.5, 0.8)
    masks = [jnp.array([[value]]) for value in (True, False, True)]
    found = np.ravel(prefix_weights(chances, masks, 0))
    np.testing.assert_allclose(found, [1, 0.9, 0.9], rtol=1e-6)
    first, _, last = np.ravel(dpace_weights(chances, masks, 0))
    np.testing.assert_allclose([first, last], [0.95 + 0.95 * 0.9, 0.95 * 0.9], rtol=1e-6)


@pytest.mark.parametrize("weigh", [prefix_weights, dpace_weights])
def test_weights_have_no_gradient(weigh):
    def total(x):
        values = [x, x, x]
        return jnp.sum(jnp.stack(weigh(values, everywhere(values), 0)))

    np.testing.assert_array_equal(jax.grad(total)(jnp.full((1, 2), 0.5)), np.zeros((1, 2)))


@pytest.mark.parametrize("weigh", [prefix_weights, dpace_weights])
def test_later_tokens_may_lack_the_last_drafts(weigh):
    """They have the weights that they have where these drafts are there and masked."""
    rng = np.random.default_rng(1)
    whole = [jnp.float32(rng.uniform(0.1, 0.9, size=(2, 6))) for _ in range(3)]
    counts = (6, 4, 1)
    masks = [jnp.broadcast_to(jnp.arange(6) < count, (2, 6)) for count in counts]
    expected = weigh(whole, masks, 0)
    cut = [one[:, :count] for one, count in zip(whole, counts, strict=True)]
    found = weigh(cut, everywhere(cut), 0)
    for one, other, count in zip(found, expected, counts, strict=True):
        np.testing.assert_allclose(one, other[:, :count], rtol=1e-6)
