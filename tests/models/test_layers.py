"""Parts that models are made of, against their formulas in numpy."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import attention
from specjax.models.attention import CausalBias, LengthBias, make_cache_bias
from specjax.models.layers import FEW_ROWS, LARGE, MASKED, multiply, soft_cap
from specjax.models.norms import LayerNorm, RMSNorm
from specjax.models.positions import Rope, Temperature, rotate

CAP = 2.0
LENGTHS = (7, 4)
SIZE, HEADS, GROUPS, WIDTH = 7, 2, 2, 4
TOLERANCE = 1e-5  # sums of float32 in another order


def draw_heads() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values whose scores are large enough for a cap to bend them."""
    keys = jax.random.split(jax.random.key(0), 3)
    heads = (HEADS * GROUPS, HEADS, HEADS)
    shapes = [(len(LENGTHS), count, SIZE, WIDTH) for count in heads]
    q, k, v = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    return 2.0 * q, k, v


def attend_in_numpy(q: jax.Array, k: jax.Array, v: jax.Array, seen: np.ndarray) -> np.ndarray:
    """Attention with capped scores; `seen` [B, T, C]."""
    k, v = (np.repeat(np.asarray(x, np.float64), GROUPS, axis=1) for x in (k, v))
    scores = CAP * np.tanh(np.asarray(q, np.float64) @ k.swapaxes(2, 3) / CAP)
    weights = np.exp(np.where(seen[:, None], scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ v


def causal() -> np.ndarray:
    return np.broadcast_to(np.tri(SIZE, dtype=bool), (len(LENGTHS), SIZE, SIZE))


@pytest.mark.parametrize("way", ["whole", "queries", "keys"])
def test_scores_are_capped_before_the_mask_hides_any(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "QUERIES", 3)
    monkeypatch.setattr(attention, "KEYS", 3)
    start = jnp.zeros(len(LENGTHS), jnp.int32)
    bias = CausalBias(start)
    bias = {
        "whole": bias.tile(0, SIZE, 0, SIZE),
        "queries": bias,
        "keys": make_cache_bias(bias, start, SIZE),
    }[way]
    q, k, v = draw_heads()
    found = attention.attention(q, k, v, bias, CAP)
    np.testing.assert_allclose(found, attend_in_numpy(q, k, v, causal()), TOLERANCE, TOLERANCE)
    uncapped = attention.attention(q, k, v, bias)
    assert np.abs(np.asarray(found) - np.asarray(uncapped)).max() > 0.1


@pytest.mark.parametrize("whole", [True, False])
def test_groups_of_heads_share_a_mask_that_all_queries_share(whole: bool) -> None:
    length = jnp.array(LENGTHS)
    bias = LengthBias(length)
    q, k, v = draw_heads()
    found = attention.attention(q, k, v, bias.tile(0, SIZE, 0, SIZE) if whole else bias, CAP)
    seen = np.arange(SIZE) < np.array(LENGTHS)[:, None]
    seen = np.broadcast_to(seen[:, None], (len(LENGTHS), SIZE, SIZE))
    np.testing.assert_allclose(found, attend_in_numpy(q, k, v, seen), TOLERANCE, TOLERANCE)


def test_keys_are_seen_as_far_as_they_are_near_and_inside() -> None:
    length, before, behind = jnp.array(LENGTHS), 1, 3
    bias = LengthBias(length, (before, behind))
    places = np.arange(SIZE)
    distance = places[:, None] - places
    near = (distance <= before) & (distance >= -behind)
    seen = near & (places < np.array(LENGTHS)[:, None, None])
    whole = np.asarray(bias.tile(0, SIZE, 0, SIZE))
    np.testing.assert_array_equal(whole[:, 0] == 0, seen)
    np.testing.assert_array_equal(bias.tile(3, 2, 1, 4), whole[:, :, 3:5, 1:5])


WAYS = ("whole", "queries", "keys")


@pytest.mark.parametrize(("own", "other"), [*zip(WAYS, WAYS, strict=True), ("keys", "whole")])
def test_one_attention_to_two_sources_is_that_to_both_as_one(
    own: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "QUERIES", 3)
    monkeypatch.setattr(attention, "KEYS", 3)
    start, (q, k, v) = jnp.zeros(len(LENGTHS), jnp.int32), draw_heads()

    def make_mask(bias: attention.Bias, way: str) -> attention.AnyBias:
        tile = bias.tile(0, SIZE, 0, SIZE)
        return {"whole": tile, "queries": bias, "keys": make_cache_bias(bias, start, SIZE)}[way]

    causally, within = CausalBias(start), LengthBias(jnp.array(LENGTHS))
    sources = [(k, v, make_mask(causally, own)), (v, k, make_mask(within, other))]
    biases = [
        jnp.broadcast_to(bias.tile(0, SIZE, 0, SIZE), (len(LENGTHS), 1, SIZE, SIZE))
        for bias in (causally, within)
    ]
    keys, values = jnp.concatenate([k, v], axis=2), jnp.concatenate([v, k], axis=2)
    whole = attention.attention(q, keys, values, jnp.concatenate(biases, axis=3))
    found = attention.merge_attention(q, sources)
    np.testing.assert_allclose(found, whole, TOLERANCE, TOLERANCE)


def test_neighbors_of_a_head_are_turned_as_pairs() -> None:
    x, angles = np.arange(1.0, 6.0)[None, None, None], np.array([0.3, 1.1])[None, None]
    (a, b, c, d, kept), (first, second) = x.ravel(), angles.ravel()
    turned = (a + 1j * b) * np.exp(1j * first), (c + 1j * d) * np.exp(1j * second)
    wanted = [one.real for one in turned] + [one.imag for one in turned] + [kept]
    found = rotate(jnp.asarray(x), jnp.asarray(angles), 1.0, interleaved=True)
    np.testing.assert_allclose(np.ravel(found), wanted, rtol=TOLERANCE)


def test_queries_grow_by_the_logarithm_of_whole_spans_before_them() -> None:
    factor = Temperature(scale=0.5, span=4).compute_factor(jnp.array([0, 3, 4, 11]))
    wanted = 1 + 0.5 * np.log([1, 1, 2, 3])
    np.testing.assert_allclose(factor, wanted, rtol=TOLERANCE)


def test_slow_pairs_of_a_proportional_rotation_are_not_turned() -> None:
    found = Rope(8, 100.0, "proportional", factor=2.0, pairs=2).compute_frequencies()
    np.testing.assert_allclose(found, [0.5, 0.5 * 100.0**-0.25, 0.0, 0.0], rtol=TOLERANCE)


def test_layer_norms_have_a_scale_for_each_head_or_none() -> None:
    x = jax.random.normal(jax.random.key(2), (1, 3, 2, 4))
    plain = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    found = LayerNorm(has_scale=False, has_bias=False).apply({}, x)
    np.testing.assert_allclose(found, plain, rtol=TOLERANCE, atol=TOLERANCE)
    scale = jnp.arange(12.0).reshape(3, 4)
    found = LayerNorm(has_bias=False, heads=3).apply({"params": {"scale": scale}}, x)
    wanted = plain * scale[:, None]
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_cap_of_0_is_none() -> None:
    x = jnp.array([-MASKED, 3.0])
    np.testing.assert_array_equal(soft_cap(x, 0.0), x)
    np.testing.assert_allclose(soft_cap(x, CAP), [CAP, CAP * np.tanh(1.5)], 1e-6)


def test_a_norm_with_a_unit_offset_stores_what_its_scale_exceeds_1_by() -> None:
    x = jax.random.normal(jax.random.key(1), (3, 8))
    norm, plain = RMSNorm(unit_offset=True), RMSNorm()
    fresh = norm.init(jax.random.key(2), x)
    assert not np.any(fresh["params"]["scale"])
    ones = plain.init(jax.random.key(2), x)
    np.testing.assert_array_equal(norm.apply(fresh, x), plain.apply(ones, x))
    w = jnp.linspace(-0.004, 0.003, 8)
    expected = plain.apply({"params": {"scale": 1.0 + w}}, x)
    np.testing.assert_array_equal(norm.apply({"params": {"scale": w}}, x), expected)
    half = norm.apply({"params": {"scale": w.astype(jnp.bfloat16)}}, x)
    np.testing.assert_allclose(half, expected, 1e-4)  # 1 + w in bfloat16 would be off by 4e-3


def few_and_large(rows: int) -> tuple[jax.Array, jax.Array]:
    """Rows of 64, and the smallest weights of 64 inputs that count as large."""
    shapes = (rows, 64), (64, LARGE // 64)
    return tuple(jax.random.normal(jax.random.key(n), s) / 8 for n, s in enumerate(shapes))


@pytest.mark.parametrize("count", [min(FEW_ROWS), max(FEW_ROWS)])
def test_products_of_few_rows_do_not_pack_their_weights_on_a_cpu(count: int) -> None:
    x, w = few_and_large(count)
    compiled = jax.jit(multiply).lower(x, w).compile()
    np.testing.assert_allclose(compiled(x, w), np.asarray(x, np.float64) @ w, 1e-4, 1e-4)
    # The library that packs them is called by a custom fusion.
    assert "kCustom" in jax.jit(jnp.matmul).lower(x, w).compile().as_text()
    assert "kCustom" not in compiled.as_text()


def test_products_of_few_rows_have_the_gradients_of_others() -> None:
    x, w = few_and_large(3)

    def compute_attention(
        multiply: Callable[[jax.Array, jax.Array], jax.Array],
    ) -> tuple[jax.Array, ...]:
        return jax.grad(lambda x, w: jnp.sum(jnp.tanh(multiply(x, w))), (0, 1))(x, w)

    for own, wanted in zip(compute_attention(multiply), compute_attention(jnp.matmul), strict=True):
        np.testing.assert_allclose(own, wanted, 1e-5, 1e-5)
