"""Adjusted distributions against the definition written out in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scripted import adjusted

from specjax.sampling import adjust, argmax, draw, sampling

SETTINGS = [
    (1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.0, 1, 1.0), (1.0, 0, 0.6),
    (0.7, 5, 0.8), (1.0, 100, 1.0), (1.0, 0, 1e-6),
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_adjust_equals_the_definition(settings):
    logits = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32) * 2
    expected = [adjusted(row, *settings) for row in logits]
    np.testing.assert_allclose(
        adjust(jnp.asarray(logits), sampling(*settings)), expected, atol=2e-6
    )


@pytest.mark.parametrize("settings", [(1.0, 2, 1.0), (1.0, 0, 0.3)])
def test_ties_go_to_the_lower_id(settings):
    logits = jnp.zeros((1, 6))
    law = adjust(logits, sampling(*settings))
    np.testing.assert_allclose(law[0], adjusted(np.zeros(6), *settings), atol=1e-6)
    assert law[0, 0] > 0 and law[0, 5] == 0


def test_temperature_zero_is_the_one_hot_argmax_with_ties_to_the_lowest():
    law = adjust(jnp.array([[1.0, 3.0, 3.0]]), sampling(0.0))
    assert law.tolist() == [[0.0, 1.0, 0.0]]


def test_argmax_equals_numpys_with_ties():
    logits = np.random.default_rng(1).integers(0, 4, (200, 7)).astype(np.float32)
    assert np.array_equal(argmax(jnp.asarray(logits)), logits.argmax(-1))


def test_bfloat16_logits_are_adjusted_in_float32():
    logits = jnp.array([[1.0, 2.0, 3.0]], jnp.bfloat16)
    assert adjust(logits, sampling(1.0)).dtype == jnp.float32


def test_a_draw_is_that_of_jax():
    weights = jax.random.uniform(jax.random.key(1), (500, 1000)).at[:, ::3].set(0.0)
    keys = jax.random.split(jax.random.key(2), 500)
    expected = jax.vmap(jax.random.categorical)(keys, jnp.log(weights))
    np.testing.assert_array_equal(draw(keys, weights), expected)


def test_draw_follows_its_weights_and_never_draws_weight_zero():
    weights = jnp.broadcast_to(jnp.array([0.2, 0.0, 0.6, 1.2]), (40_000, 4))
    drawn = draw(jax.random.split(jax.random.key(0), 40_000), weights)
    share = np.bincount(drawn, minlength=4) / 40_000
    np.testing.assert_allclose(share, [0.1, 0.0, 0.3, 0.6], atol=0.012)  # 5 standard errors
    assert share[1] == 0.0


@pytest.mark.parametrize(
    ("field", "settings"),
    [("temperature", (-1.0,)), ("top_k", (1.0, -1)), ("top_p", (1.0, 0, 0.0))],
)
def test_a_setting_out_of_range_is_named(field, settings):
    with pytest.raises(ValueError, match=field):
        sampling(*settings)
