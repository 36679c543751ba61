"""Weights stored in bfloat16 under float32 arithmetic: the same numbers from half the bytes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.hf import huggingface
from specjax.models import layers
from specjax.models.half_weights import HalfKernel, multiply, multiply_bfloat16
from specjax.models.quantized_weights import WeightFormat, count_numbers, count_stored_bytes

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = ("llama", "opt_350m", "t5_v1_1", "marian", "t5gemma", "qwen3_moe")
"""Tied and untied output layers, positions and projections, two stacks, a mixture."""


def make_published(name: str) -> specjax.LoadedModel:
    """A random model whose weights are those of a checkpoint in bfloat16, in float32."""
    loaded = specjax.load(GOLDEN / name)
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(x.dtype), loaded.params)
    return dataclasses.replace(loaded, params=rounded)


def half(loaded: specjax.LoadedModel) -> specjax.LoadedModel:
    return specjax.quantize(loaded, "bfloat16")


@pytest.mark.parametrize("spread", [1e-4, 1.0, 1e4])
def test_a_product_is_as_close_as_that_of_float32(spread: float) -> None:
    """Three parts hold 24 bits; one alone, as XLA leaves it without care, is off by 2^-9."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((5, 64)) * spread ** rng.uniform(-1, 1, (5, 64))).astype(np.float32)
    kernel = jnp.asarray(rng.standard_normal((64, 24)), jnp.bfloat16)
    made = HalfKernel.from_array(kernel)
    found = jax.jit(multiply)(x, made.rows)
    assert found.dtype == jnp.float32
    whole = np.asarray(kernel, np.float64)
    bound = np.abs(np.float64(x)) @ np.abs(whole)
    error = np.abs(np.asarray(found, np.float64) - np.float64(x) @ whole)
    assert (error <= 2.0**-21 * bound).all()  # 64 sums, each rounded to 24 bits


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_a_published_checkpoint_loses_nothing(name: str) -> None:
    whole = make_published(name)
    small = half(whole)
    prompts = [[5, 9, 23, 4, 1], [7, 8, 11, 1]]
    drafted = specjax.strategy(drafter="prompt_lookup", length=3)
    texts = [
        specjax.Generator(model, {}, strategy, max_new_tokens=12)(prompts).tokens
        for model, strategy in ((whole, None), (small, None), (small, drafted))
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_bfloat16_model_multiplies_what_it_has() -> None:
    x = jax.random.normal(jax.random.key(0), (5, 64)).astype(jnp.bfloat16)
    rows = jax.random.normal(jax.random.key(1), (24, 64)).astype(jnp.bfloat16)
    found = multiply(x, rows)
    assert found.dtype == jnp.bfloat16
    whole = np.asarray(x, np.float64) @ np.asarray(rows, np.float64).T
    # Products are summed in float32 and rounded once.
    np.testing.assert_allclose(np.asarray(found, np.float64), whole, 2**-8, 1e-4)


def test_a_call_that_reads_out_no_logits_multiplies_no_rows() -> None:
    made = multiply(jnp.zeros((0, 8)), jnp.ones((3, 8), jnp.bfloat16))
    assert made.shape == (0, 3) and made.dtype == jnp.float32


def test_a_product_of_two_bfloat16_matrices_has_its_own_gradients() -> None:
    keys = jax.random.split(jax.random.key(2), 3)
    shapes = (40, 64), (64, 24), (40, 24)
    x, w, g = (
        jax.random.normal(k, s).astype(jnp.bfloat16) for k, s in zip(keys, shapes, strict=True)
    )

    def wide(x: jax.Array, w: jax.Array) -> jax.Array:
        return x.astype(jnp.float32) @ w.astype(jnp.float32)

    made, back = jax.vjp(jax.jit(multiply_bfloat16), x, w)
    expected, wide_back = jax.vjp(wide, x, w)
    found, exact = (made, *back(g)), (expected, *wide_back(g.astype(jnp.float32)))
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == jnp.bfloat16
        # Sums of up to 64 products in float32, rounded once.
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), 2**-8, 1e-4
        )


@pytest.mark.parametrize("backward", [False, True])
def test_such_products_are_of_a_float32_result_on_a_cpu(backward: bool) -> None:
    """Else XLA widens their operands; it does so to those of the kernel's gradient all the same."""
    x, w = jnp.ones((40, 64), jnp.bfloat16), jnp.ones((64, 24), jnp.float32)

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(layers.multiply(x, w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2)

    text = jax.jit(jax.grad(loss, argnums=(0, 1)) if backward else loss).lower(x, w).as_text()
    made = re.findall(r"dot_general .*: \((.*)\) -> tensor<(.*)>", text)
    assert len(made) == (3 if backward else 1)
    for operands, result in made:
        assert operands.count("xbf16>") == 2 and result.endswith("xf32")


def test_kernels_and_tables_take_half_the_bytes() -> None:
    whole, small = make_published("llama"), half(make_published("llama"))
    kernel = small.params["layers_0"]["ff"]["up"]["kernel"]
    assert isinstance(kernel, HalfKernel) and kernel.rows.dtype == jnp.bfloat16
    assert kernel.shape == whole.params["layers_0"]["ff"]["up"]["kernel"].shape
    assert small.params["embedding"].dtype == jnp.bfloat16
    assert count_numbers(small.params) == count_numbers(whole.params)
    taken, before = (
        sum(map(count_stored_bytes, jax.tree.leaves(m.params))) for m in (small, whole)
    )
    assert 0.5 < taken / before < 0.51  # norms stay


def test_no_wide_kernel_is_made() -> None:
    """XLA must multiply what is stored: a copy in float32 would be read in its place."""
    x, kernel = jnp.ones((3, 64)), HalfKernel.from_array(jnp.ones((64, 24)))
    text = jax.jit(multiply).lower(x, kernel.rows).compile().as_text()
    assert "f32[24,64]" not in text and "f32[64,24]" not in text


def test_loading_is_halving_what_was_loaded() -> None:
    read = specjax.load(GOLDEN / "llama", weights="bfloat16").params
    jax.tree.map(np.testing.assert_array_equal, read, half(specjax.load(GOLDEN / "llama")).params)


def test_integers_of_a_half_model_are_those_of_the_model() -> None:
    whole = make_published("llama")
    jax.tree.map(
        np.testing.assert_array_equal,
        specjax.quantize(half(whole), "int8").params["layers_0"],
        specjax.quantize(whole, "int8").params["layers_0"],
    )


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(specjax.UserError, match="'bfloat16:8'; it must be bfloat16, int8"):
        specjax.load(GOLDEN / "llama", weights="bfloat16:8")
    mesh = specjax.make_mesh({"data": 1})
    with pytest.raises(specjax.UserError, match="needs one device; with a mesh give dtype"):
        specjax.load(GOLDEN / "llama", weights="bfloat16", mesh=mesh)
    with pytest.raises(specjax.UserError, match="needs one device; with a mesh give dtype"):
        half(specjax.load(GOLDEN / "llama", mesh=mesh))
    small = half(specjax.load(GOLDEN / "llama"))
    with pytest.raises(specjax.UserError, match="quantized weights, which are not written"):
        huggingface.save(tmp_path / "out", small.model, small.params)
    assert str(WeightFormat.parse("bfloat16")) == "bfloat16"
