"""int8 and int4 weights: their error, what they take, and that decoding with them is exact."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix

import specjax
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.config.fields import model_names, model_source
from specjax.experiments.config.footprint import abstract_params, expert_itemsize, plan_model
from specjax.experiments.config.placement import copies_target
from specjax.experiments.pairs import load_pair
from specjax.hf import huggingface
from specjax.hf.tensors import flat_shapes
from specjax.loading import LoadedModel
from specjax.models import quantized_weights
from specjax.models.altup import AltUp
from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import Mixture
from specjax.models.positions import Rope
from specjax.models.quantized_weights import (
    WeightFormat,
    count_numbers,
    count_stored_bytes,
    is_quantized,
    multiply,
    quantize,
    quantize_params,
    to_key_path,
)
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.parallel import padding

V = 64
MODELS = {  # of few shapes: each kernel's is compiled
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=32, d_ff=48, num_layers=2, num_heads=4, num_kv_heads=4, d_head=8,
            max_positions=64, rope=Rope(8), eos=(1,),
        )
    ),
    "mixture": Causal(
        CausalConfig(
            "mixtral", V, d_model=32, d_ff=48, num_layers=2, num_heads=4, num_kv_heads=4, d_head=8,
            max_positions=64, rope=Rope(8), eos=(1,), mixtures=(Mixture(4, 2, 48), None),
        )
    ),
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=32, d_kv=8, d_ff=48, num_heads=4, num_layers=1,
            num_decoder_layers=2, tied=True,
        )
    ),
}  # fmt: skip
PROMPTS = [[5, 9, 23, 4, 1], [7, 8, 1], [2, 3, 4, 5, 6, 7, 1]]
ALL = ("int8", "int8:8", "int4:8", "int4:0")


@functools.cache
def load_quantized(kind: str) -> specjax.LoadedModel:
    rng = np.random.default_rng(4)

    def draw_weights(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        spread = 1.0 if leaf.shape[0] == V else 0.3
        return jnp.asarray(rng.normal(0.0, spread, leaf.shape), jnp.float32)

    return specjax.LoadedModel(
        MODELS[kind], jax.tree.map(draw_weights, get_parameter_shapes(MODELS[kind]))
    )


@functools.cache
def small(kind: str, weights: str) -> specjax.LoadedModel:
    return specjax.quantize(load_quantized(kind), weights)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("small") / "target"
    huggingface.save(place, MODELS["llama"], load_quantized("llama").params)
    return place


def dequantize(weight) -> np.ndarray:
    """Integers times scales, in numpy."""
    scale = np.asarray(weight.scale, np.float64)
    integers = np.asarray(weight.qvalue, np.float64)
    return integers * np.repeat(scale, len(integers) // len(scale), axis=0)


@pytest.mark.parametrize("spelled", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_no_weight_moves_by_more_than_half_its_scale(spelled, seed):
    """Whatever the magnitudes of channels and groups, one of zeros among them."""
    weights = WeightFormat.parse(spelled)
    rng = np.random.default_rng(seed)
    kernel = rng.standard_normal((32, 6)) * 10.0 ** rng.uniform(-3, 3, (4, 1, 6)).repeat(8, 0)[:, 0]
    kernel[:, 2] = 0.0
    kernel = kernel.astype(np.float32)
    made = quantize(kernel, weights)
    assert made.qvalue.dtype == quantized_weights.NUMBERS[weights.kind]
    assert made.scale.shape == ((32 // weights.group if weights.group else 1), 6)
    step = np.asarray(made.scale, np.float64).repeat(32 // len(made.scale), axis=0)
    error = np.abs(dequantize(made) - kernel)
    assert (error <= step * (0.5 + 1e-5)).all()  # and float32's rounding of the division
    assert not dequantize(made)[:, 2].any()
    finest = np.abs(kernel).reshape(len(made.scale), -1, 6).max(1) / made.scale
    most = {"int8": 127.5, "int4": 7.5}[weights.kind]
    np.testing.assert_allclose(np.delete(finest, 2, axis=1), most, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_product_is_that_of_the_weights_it_stands_for(dtype):
    """In bfloat16 scales, products and sums are rounded: four of its steps of the largest."""
    kernel = jax.random.normal(jax.random.key(0), (32, 12)).astype(dtype)
    x = jax.random.normal(jax.random.key(1), (5, 32)).astype(dtype)
    made = quantize(kernel, WeightFormat("int4", 8))
    assert made.scale.dtype == dtype
    whole = np.asarray(x, np.float64) @ dequantize(made)
    found = jax.jit(multiply)(x, made)
    assert found.dtype == dtype
    bound = (1e-6 if dtype == jnp.float32 else 2**-6) * np.abs(whole).max()
    np.testing.assert_allclose(np.asarray(found, np.float64), whole, atol=bound)


def test_kernels_of_layers_are_small_and_nothing_else():
    for kind in MODELS:
        flat = jax.tree_util.tree_flatten_with_path(
            small(kind, "int4:8").params, is_leaf=is_quantized
        )
        for path, leaf in flat[0]:
            where = to_key_path(path)
            layer = where[0].startswith(("layers", "encoder", "decoder")) and "kernel" in where
            expert = where[-1] in ("gates", "ups", "downs")
            assert is_quantized(leaf) == (expert or (layer and "router" not in where)), where
        assert count_numbers(small(kind, "int4:8").params) == count_numbers(
            load_quantized(kind).params
        )


def test_coefficients_of_residual_streams_stay_wide():
    """They have fewer inputs than a group."""
    config = dataclasses.replace(MODELS["llama"].config, altup=AltUp(4))
    shapes = flat_shapes(get_parameter_shapes(Causal(config)))
    assert ("layers_0", "update", "prediction", "kernel") in shapes
    WeightFormat.parse("int8:16").check(shapes)


def test_a_copy_shares_what_is_not_small():
    own, copy = load_quantized("t5").params, small("t5", "int8").params
    assert copy["embedding"] is own["embedding"]
    assert copy["decoder_norm"]["scale"] is own["decoder_norm"]["scale"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "t5", "mixture"])
def test_speculation_with_a_small_target_gives_its_own_tokens(kind):
    """Drafted by a smaller copy of itself; and no row depends on the others of its batch."""
    target = small(kind, "int8")
    baseline = specjax.Generator(target, max_new_tokens=20)(PROMPTS).tokens
    drafters = {"drafter": small(kind, "int4:8")}
    generator = specjax.Generator(
        target, drafters, specjax.speculative(length=3), max_new_tokens=20
    )
    together = generator(PROMPTS)
    assert together.tokens == baseline
    assert together.statistics.accepted > 0
    assert [generator([p], batch_size=len(PROMPTS)).tokens[0] for p in PROMPTS] == baseline
    assert any(len(set(row)) > 3 for row in baseline)


def test_no_wide_kernel_leaves_the_loop():
    """XLA moves what does not change out of loops; here under the passes of a real run."""
    kernel = quantize(jax.random.normal(jax.random.key(0), (24, 24)), WeightFormat("int8", 0))

    def run(x, kernel):
        return jax.lax.fori_loop(0, 9, lambda _, x: jnp.tanh(multiply(x, kernel)), x)

    options = {"xla_disable_hlo_passes": ""}
    text = jax.jit(run).lower(jnp.ones((2, 24)), kernel).compile(options).as_text()
    carried = re.search(r"= \(([^=]*)\) while\(", text)[1]
    assert "s8[24,24]" in carried
    assert "f32[24,24]" not in carried


@pytest.mark.parametrize("kind", ["llama", "mixture"])
def test_a_small_model_takes_the_bytes_that_are_planned(kind):
    """Of a copy of the target a plan counts what it does not share."""
    model, whole = MODELS[kind], load_quantized(kind).params
    config = decode_config(batch_size=1, max_prompt_tokens=8)
    for spelled in ALL:
        weights = WeightFormat.parse(spelled)
        params = jax.eval_shape(functools.partial(quantize_params, weights=weights), whole)
        entry = LoadedModel(model, params)
        plan = functools.partial(
            plan_model, entry, config, {"data": 1, "model": 1}, 8, 1, None, weights
        )
        assert plan().parameters == count_numbers(whole)
        assert plan().parameter_bytes == sum(map(count_stored_bytes, jax.tree.leaves(params)))
        layers = [x for x in jax.tree.leaves(params, is_leaf=is_quantized) if is_quantized(x)]
        own = sum(map(count_stored_bytes, jax.tree.leaves(layers)))
        assert plan(shares=True).parameter_bytes == own
    stored = small(kind, "int4:8")
    compiled = jax.jit(lambda *arrays: [x.astype(jnp.float32) for x in arrays]).lower(
        *jax.tree.leaves(stored.params)
    )
    planned = plan_model(stored, config, {"data": 1, "model": 1}, 8, 1, None)
    assert compiled.compile().memory_analysis().argument_size_in_bytes == planned.parameter_bytes


def test_a_weight_of_an_expert_takes_its_integer_and_its_share_of_scales():
    """What a call on a topology is expected to read of it."""
    sizes = {"": 2.0, "int8:8": 1 + 2 / 8, "int4:16": 0.5 + 2 / 16}
    for spelled, size in sizes.items():
        weights = WeightFormat.parse(spelled) if spelled else None
        params = abstract_params(MODELS["mixture"], jnp.bfloat16, weights)
        assert expert_itemsize(params, jnp.bfloat16) == size
    params = abstract_params(MODELS["llama"], jnp.bfloat16, WeightFormat("int8", 0))
    assert expert_itemsize(params, jnp.bfloat16) == 2.0


@pytest.mark.parametrize("spelled", ["int8", "int4:8"])
def test_loading_quantized_weights_is_shrinking_loaded_ones(folder, spelled):
    read = specjax.load(folder, weights=spelled)
    jax.tree.map(np.testing.assert_array_equal, read.params, small("llama", spelled).params)


def test_a_smaller_copy_of_a_small_model_is_nearly_that_of_the_model():
    again = specjax.quantize(small("llama", "int8"), "int4:8").params
    once = small("llama", "int4:8").params
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(once), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype


def test_a_config_spells_weights_behind_checkpoints(folder):
    config = decode_config(
        target=f"{folder}", drafter="target:int4:8", drafters={"other": f"{folder}:int8"}
    )
    assert list(model_names(config)) == ["target", "drafter", "other"]
    assert model_source(config, "target") == (str(folder), None)
    assert model_source(config, "drafter") == (str(folder), WeightFormat("int4", 8))
    assert model_source(config, "other") == (str(folder), WeightFormat("int8", 0))
    assert copies_target(config, "drafter") and copies_target(config, "other")
    pair = load_pair(config)
    assert pair.drafters["drafter"].params["embedding"] is pair.target.params["embedding"]
    jax.tree.map(
        np.testing.assert_array_equal,
        pair.drafters["drafter"].params,
        small("llama", "int4:8").params,
    )
    config.target = f"{folder}:int8"
    assert not copies_target(config, "drafter")
    assert model_source(config, "drafter") == (str(folder), WeightFormat("int4", 8))


def test_what_cannot_be_small_is_refused_in_a_sentence(folder, tmp_path):
    for weights in ("int3", "int4:x", "int8:-1", 8, None):
        with pytest.raises(
            specjax.UserError, match="weights is .*; it must be bfloat16, int8, int4"
        ):
            specjax.load(folder, weights=weights)
    with pytest.raises(specjax.UserError, match=r"ff/down/kernel has 48 inputs.*groups of 32"):
        specjax.load(folder, weights="int4:32")
    with pytest.raises(specjax.UserError, match=r"has 32 inputs, which groups of 20"):
        specjax.quantize(load_quantized("t5"), "int4:20")
    with pytest.raises(specjax.UserError, match="pad_heads"):
        padding.pad_params(small("llama", "int8").params, padding.pad_model(MODELS["llama"], 3))
    with pytest.raises(specjax.UserError, match="model is 'x'"):
        specjax.quantize("x", "int8")
    with pytest.raises(specjax.UserError, match="quantized weights, which are not written"):
        huggingface.save(tmp_path / "out", MODELS["llama"], small("llama", "int8").params)
    for drafter in ("target:int3", f"{folder}:int4:x"):
        with pytest.raises(specjax.UserError, match="suffix .*; it must be bfloat16, int8, int4"):
            model_names(decode_config(target=str(folder), drafter=drafter))


def test_qwix_reads_them_as_they_are():
    """The leaves are its own arrays, for whoever computes with it."""
    made = small("llama", "int4:8").params["layers_0"]["ff"]["up"]["kernel"]
    assert isinstance(made, qwix.QArray)
    np.testing.assert_allclose(qwix.dequantize(made), dequantize(made), rtol=1e-6)
    shrinks = WeightFormat("int8", 0).applies_to
    up = ("layers_0", "ff", "up", "kernel")
    assert shrinks(up, (4, 4)) and not shrinks(("head", "kernel"), (4, 4))
    assert shrinks(("layers_0", "ff", "ups"), (2, 4, 4))
    assert not shrinks(("layers_0", "ff", "router", "logits", "kernel"), (4, 4))
    assert not any(shrinks((name, "kernel"), (4, 4)) for name in ("project_in", "project_out"))


@pytest.mark.slow
def test_a_quantized_opt_350m_keeps_its_projections_and_writes_its_own_tokens():
    wide = specjax.load(Path(__file__).parents[1] / "golden" / "opt_350m")
    made = specjax.quantize(wide, "int8")
    assert is_quantized(made.params["layers_0"]["ff"]["up"]["kernel"])
    for name in ("project_in", "project_out"):
        assert made.params[name]["kernel"] is wide.params[name]["kernel"]
    prompts, drafted = [[5, 9, 23, 4], [7, 8, 60]], specjax.strategy(drafter="neural", length=2)
    found = specjax.Generator(made, {"drafter": wide}, drafted, max_new_tokens=12)(prompts)
    assert found.tokens == specjax.Generator(made, max_new_tokens=12)(prompts).tokens
