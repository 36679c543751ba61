"""T5Gemma: windows over rings, stacks of two sizes, and what others make of its shape."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, run, texts
from jax.sharding import PartitionSpec as P
from safetensors.numpy import load_file

from specjax.decoding.strategy import speculative
from specjax.hf.huggingface import load
from specjax.hf.tensors import flat_shapes
from specjax.metrics.operations import transformer_shape
from specjax.models.caches import Ring
from specjax.models.positions import Rope
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig
from specjax.parallel.padding import pad_model, pad_params
from specjax.parallel.sharding import find_undivided, parameter_spec
from specjax.training.surgery import take

GOLDEN = Path(__file__).parents[1] / "golden"
V = 14
ENCODER = Stack(12, 20, 2, 2, 1, 6, Rope(6), (2, 0), query_scalar=5.0, softcap=2.0)
DECODER = Stack(16, 24, 2, 4, 2, 4, Rope(4), (3, 0), query_scalar=4.0, softcap=2.0)
TARGET = T5Gemma(T5GemmaConfig(V, ENCODER, DECODER, logit_cap=6.0))


@functools.cache
def params() -> Any:
    draws = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: jnp.asarray(draws.normal(0.1, 0.3, leaf.shape), leaf.dtype),
        get_parameter_shapes(TARGET),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5gemma", "t5gemma2"])
def test_speculation_on_rings_continues_as_pytorch(name: str) -> None:
    checkpoint = load(GOLDEN / name)
    expected = load_file(GOLDEN / name / "expected.safetensors")
    model, limit = checkpoint.model, expected["greedy"].shape[1]
    strategy = speculative(3)
    made = decoder((("target", model), ("drafter", model)), strategy, limit)
    assert model.windows[0] + made.ahead < made.buffer(0)  # or there would be no rings
    weaker = jax.tree.map(lambda x: 0.95 * x, checkpoint.params)
    weights = {"target": checkpoint.params, "drafter": weaker}
    rows = zip(expected["source"], expected["source_length"], strict=True)
    prompts = [row[:length].tolist() for row, length in rows]
    found = run(made.models, weights, strategy, prompts, limit)
    assert texts(found) == expected["greedy"].tolist()
    assert 0 < int(found.trace.accepted.sum()) < int(found.trace.drafted.sum())


def test_only_layers_with_windows_have_rings() -> None:
    prompt, length = jnp.ones((1, 4), jnp.int32), jnp.array([4])
    start, shapes = functools.partial(TARGET.start, capacity=40), get_parameter_shapes(TARGET)
    cache = jax.eval_shape(functools.partial(start, ahead=4), shapes, prompt, length)[0]
    kinds = [isinstance(own, Ring) for own in cache.data["own"]]
    assert kinds == [True, False] and cache.data["own"][0].keys.shape[2] == 3 + 4
    cache = jax.eval_shape(start, shapes, prompt, length)[0]
    assert [own[0].shape[2] for own in cache.data["own"]] == [40, 40]


def test_parameters_are_split_by_the_sizes_of_their_own_stack() -> None:
    def spec(*where: str) -> P:
        return parameter_spec(where, TARGET, 4)

    # Four query heads of the decoder divide by four, two of the encoder and all key heads do not.
    assert spec("decoder_0", "self_attention", "q", "kernel") == P(None, "model")
    assert spec("decoder_0", "cross_attention", "k", "kernel") == P(None, None)
    assert spec("encoder_0", "self_attention", "q", "kernel") == P(None, None)
    assert spec("encoder_1", "ff", "down", "kernel") == P("model", None)
    assert find_undivided(TARGET, 4) == {"vocabulary": V, "heads": 2, "kv_heads": 2}
    assert parameter_spec(("source_embedding",), TARGET, 7) == P("model", None)


@pytest.mark.slow
def test_heads_of_zeros_change_no_logits() -> None:
    wide = pad_model(TARGET, 3)
    assert (wide.config.encoder.num_heads, wide.config.decoder.num_heads) == (2, 6)
    batch = {"prompt": jnp.array([[3, 4, 5]]), "prompt_length": jnp.array([3])}
    batch["inputs"] = jnp.array([[2, 6, 7, 8]])
    logits = wide.teach(pad_params(params(), wide), batch)[0]
    np.testing.assert_allclose(logits, TARGET.teach(params(), batch)[0], atol=1e-5)


def test_a_smaller_model_has_the_windows_of_the_layers_it_takes() -> None:
    small, weights = take(TARGET, params(), decoder=(1,), encoder=(1,))
    assert (small.config.encoder.windows, small.config.decoder.windows) == ((0,), (0,))
    assert jax.tree.structure(weights) == jax.tree.structure(get_parameter_shapes(small))
    for mine, theirs in (("decoder_0", "decoder_1"), ("encoder_0", "encoder_1")):
        jax.tree.map(np.testing.assert_array_equal, weights[mine], params()[theirs])


def test_operations_count_the_weights_of_both_stacks() -> None:
    shape, sizes = transformer_shape(TARGET), flat_shapes(get_parameter_shapes(TARGET))

    def matrices(side: str) -> int:
        return sum(
            math.prod(size)
            for where, size in sizes.items()
            if where[0].startswith(f"{side}_") and where[-1] == "kernel"
        )

    assert shape.encoder_layers * shape.reader.encoder_layer_weights == matrices("encoder")
    assert shape.decoder_weights == matrices("decoder")


def test_key_heads_must_divide_the_query_heads() -> None:
    with pytest.raises(ValueError, match="num_key_value_heads is 3; it must divide the 4"):
        dataclasses.replace(DECODER, num_kv_heads=3)
