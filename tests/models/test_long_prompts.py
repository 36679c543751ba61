"""Attention in parts and prompts in chunks give what whole arrays give, and hold none of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import attention, causal, local_attention, prefill
from specjax.models.altup import AltUp
from specjax.models.base import Cache
from specjax.models.causal import Causal, CausalConfig
from specjax.models.causal_config import Heads
from specjax.models.experts import Mixture
from specjax.models.layer_inputs import LayerInputs
from specjax.models.long_t5 import LongT5, LongT5Config
from specjax.models.positions import Rope, Temperature
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig
from specjax.models.t5gemma2 import T5Gemma2, T5Gemma2Config

SMALL = {
    "WHOLE_SCORES": 24,
    "QUERIES": 4,
    "LONG_CACHE": 8,
    "KEYS": 5,
    "WHOLE_PROMPT": 6,
    "CHUNK": 4,
}
"""Numbers under which texts of a few tokens are long ones; none divides another or a text."""

LENGTHS, SIZE, CAPACITY = (13, 3, 9), 13, 22
TOLERANCE = 1e-5
V = 12

CAUSAL = CausalConfig(
    "llama", V, d_model=16, d_ff=24, num_layers=2, num_heads=4, num_kv_heads=2, d_head=8,
    max_positions=64, rope=Rope(8, kind="dynamic", factor=2.0, original=5), windows=(0, 6),
)  # fmt: skip
MODELS = {
    "grouped": Causal(CAUSAL),
    "sliding": Causal(
        dataclasses.replace(
            CAUSAL, num_kv_heads=4, windows=(6, 3), rope=Rope(4), parallel=True,
            mixtures=(None, Mixture(4, 2, 8)), sinks=True,
        )
    ),
    "learned": Causal(dataclasses.replace(CAUSAL, rope=None, windows=())),
    "capped": Causal(
        dataclasses.replace(
            CAUSAL, rope=Rope(8), ropes=(Rope(8, theta=50.0), None), windows=(6, 0),
            unit_offset=True, post_norm=True, wide_qk_norm=True, query_scale=0.9,
            attention_cap=1.5, logit_cap=3.0, embedding_scale=4.0,
        )
    ),
    "unlike": Causal(
        dataclasses.replace(
            CAUSAL, rope=Rope(4, interleaved=True), windows=(6, 0), qk_norm=True, value_norm=True,
            heads=(Heads(2, 8), Heads(1, 12, values_are_keys=True)), layer_scale=True,
            temperature=Temperature(0.5, 4), residual_scale=0.7,
        )
    ),
    "sloped": Causal(
        dataclasses.replace(
            CAUSAL, rope=None, windows=(), slopes=(0.5, 0.05, 0.9, 0.2), num_kv_heads=4,
            embedding_norm=True, rms_norm=False,
        )
    ),
    "chunked": Causal(
        dataclasses.replace(
            CAUSAL, rope=Rope(8), ropes=(Rope(8, interleaved=True), None), windows=(4, 0),
            chunked_windows=True, rotated_norm=True,
            mixtures=(Mixture(4, 1, 8, False, 6, scoring="sigmoid", weighted_inputs=True), None),
            temperature=Temperature(0.5, 4, first=1, unrotated=True),
        )
    ),
    "shared": Causal(
        dataclasses.replace(
            CAUSAL, rope=Rope(8), num_layers=5, windows=(6, 0, 3, 0, 3), shared_caches=(1, 2),
            d_ffs=(24, 24, 24, 40, 40), layer_inputs=LayerInputs(6, V), altup=AltUp(2),
        )
    ),
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=2,
            num_decoder_layers=2, buckets=8, max_distance=12,
        )
    ),
    "longt5": LongT5(
        LongT5Config(
            vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=2,
            num_decoder_layers=2, buckets=8, max_distance=12, radius=1, global_block=3,
        )
    ),
    "t5gemma": T5Gemma(
        T5GemmaConfig(
            V, Stack(12, 16, 2, 2, 1, 6, Rope(6), (4, 0), query_scalar=4.0, softcap=3.0),
            Stack(16, 24, 2, 4, 2, 4, Rope(4), (5, 0), query_scalar=4.0, softcap=3.0),
        )
    ),
    "t5gemma2": T5Gemma2(
        T5Gemma2Config(
            V, Stack(16, 16, 2, 2, 1, 6, Rope(6), (4, 0), 4.0, sliding_rope=Rope(6, 50.0)),
            Stack(16, 24, 2, 4, 2, 4, Rope(4), (5, 0), 4.0, sliding_rope=Rope(4, 50.0)),
            image_end=V - 1,
        )
    ),
}  # fmt: skip
GEMMAS = [pytest.param(name, marks=pytest.mark.slow) for name in ("t5gemma", "t5gemma2")]
DECODERS = [name for name, model in MODELS.items() if model.info.start_token is None]


@contextlib.contextmanager
def sizes(**numbers: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (attention, causal, local_attention, prefill):
            for name, number in numbers.items():
                if hasattr(module, name):
                    patch.setattr(module, name, number)
        yield


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """No program traced under the small numbers is left to other tests, nor the other way round."""
    jax.clear_caches()
    with sizes(**SMALL):
        yield
    jax.clear_caches()


def whole(call: Callable[..., Any], *args: Any) -> Any:
    """The result where nothing is long; `call` must not pass through `layers.apply`."""
    with sizes(**dict.fromkeys(SMALL, 1 << 40)):
        return jax.jit(call)(*args)


@functools.cache
def params(name: str) -> Any:
    return jax.tree.map(lambda x: x * 1.3, MODELS[name].init(jax.random.key(3)))


def texts(size: int, seed: int = 0) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (len(LENGTHS), size), 2, V)


def close(found: Any, expected: Any) -> None:
    def one(a: jax.Array, b: jax.Array) -> None:
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)

    jax.tree.map(one, found, expected)


def inside(tree: Any, axis: int) -> Any:
    """Arrays with zeros where a prompt's own tokens end."""

    def one(x: jax.Array) -> np.ndarray:
        x = np.moveaxis(np.array(x), axis, 1)[:, :SIZE]
        x[np.arange(SIZE) >= np.array(LENGTHS)[:, None]] = 0
        return x

    return jax.tree.map(one, tree)


@functools.cache
def start_prompt(name: str) -> tuple[Cache, Any]:
    prompt, length = texts(SIZE), jnp.array(LENGTHS)
    features = (1, 2) if name in DECODERS else ()
    start = functools.partial(MODELS[name].start, capacity=CAPACITY, features=features)
    return jax.jit(start)(params(name), prompt, length)


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_chunks_leave_what_a_whole_prompt_leaves(name: str) -> None:
    """Also where the last chunk reads some tokens again, and where rows are shorter than one."""
    prompt, length = texts(SIZE), jnp.array(LENGTHS)

    def read(params: Any) -> Any:
        return MODELS[name].module.apply({"params": params}, prompt, length, (1, 2), method="read")

    own, embedding, features = whole(read, params(name))
    cache, reading = start_prompt(name)
    assert cache.length.tolist() == [size - 1 for size in LENGTHS]
    close(inside(cache.data["own"], 2), inside(own, 2))
    close(reading.embedding, embedding)
    close(inside(reading.features, 1), inside(features, 1))


def teach(name: str, params: Any, tokens: jax.Array) -> jax.Array:
    """Logits of whole texts."""
    batch = {"inputs": tokens, "length": jnp.full(len(LENGTHS), tokens.shape[1])}
    batch |= {"prompt": texts(SIZE), "prompt_length": jnp.array(LENGTHS)}
    return MODELS[name].teach(params, batch)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sliding", "learned", "capped", "unlike", "sloped", "chunked", "shared", "t5", *GEMMAS]
)
def test_a_long_cache_gives_the_logits_of_whole_texts(name: str) -> None:
    """Rows are at different places; several calls of one and of more tokens, over stale slots.

    Dynamic scaling is left out: prompts are rotated for their own length, texts for theirs.
    """
    text = jnp.concatenate([texts(SIZE), texts(CAPACITY - SIZE, 1)], axis=1)
    expected, (cache, _) = (
        whole(functools.partial(teach, name), params(name), text),
        start_prompt(name),
    )
    if name not in DECODERS:
        cache = jax.jit(MODELS[name].extend)(params(name), text[:, :3], cache)[1]
    extend = jax.jit(MODELS[name].extend)
    for fed in (1, 3, 3, 1):
        at = cache.length[:, None] + jnp.arange(fed)
        tokens = jnp.take_along_axis(text, at, axis=1)
        output, cache = extend(params(name), tokens, cache)
        close(output.logits, jnp.take_along_axis(expected, at[..., None], axis=1))
        cache = cache.replace(length=cache.length - (fed > 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sliding", "unlike", "sloped", "chunked", "shared", "t5", *GEMMAS]
)
def test_a_tree_over_a_long_cache_gives_the_logits_of_its_paths(name: str) -> None:
    """Two children of one token: each as if the other were not there."""
    cache, tokens = start_prompt(name)[0], texts(3, 2)
    visible = jnp.broadcast_to(jnp.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool), (3, 3, 3))
    position = cache.length[:, None] + jnp.array([0, 1, 1])
    extend = jax.jit(MODELS[name].extend)
    output, _ = extend(params(name), tokens, cache, position=position, visible=visible)
    for child in (1, 2):
        chain, _ = extend(params(name), tokens[:, jnp.array([0, child])], cache)
        close(output.logits[:, child], chain.logits[:, 1])


@pytest.mark.slow
def test_a_row_keeps_its_bits_whatever_the_others_hold() -> None:
    cache, tokens = start_prompt("sliding")[0], texts(2, 3)
    extend = jax.jit(MODELS["sliding"].extend)
    logits = [
        extend(params("sliding"), tokens, cache.replace(length=jnp.array(length)))[0].logits[1]
        for length in ([12, 2, 8], [3, 2, 1])
    ]
    np.testing.assert_array_equal(*logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "longt5", *GEMMAS])
def test_the_encoder_in_blocks_gives_its_whole_states(name: str) -> None:
    source, length = texts(SIZE), jnp.array(LENGTHS)

    def encode(params: Any) -> Any:
        module = MODELS[name].module.bind({"params": params})
        return module.read_encoded(module.encode(source, length), length)

    data, embedding, encoded = whole(encode, params(name))
    cache, reading = start_prompt(name)
    close(reading.embedding, embedding)
    close(inside(reading.encoded, 1), inside(encoded, 1))
    close(inside(cache.data["cross"], 2), inside(data["cross"], 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "remat"),
    [("grouped", True), ("t5", False), ("longt5", True), ("t5gemma", True), ("t5gemma2", True)],
)
def test_gradients_in_blocks_are_those_of_whole_texts(name: str, remat: bool) -> None:
    model = MODELS[name]
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, remat=remat))
    batch = {"inputs": texts(SIZE, 4), "length": jnp.array(LENGTHS)}
    batch |= {"prompt": texts(SIZE + 2), "prompt_length": jnp.array(LENGTHS)}

    def loss(params: Any) -> jax.Array:
        logits = model.teach(params, batch)[0]
        row = jnp.arange(SIZE) < batch["length"][:, None]
        return jnp.mean(jnp.square(logits) * row[..., None])

    found, expected = jax.jit(jax.grad(loss))(params(name)), whole(jax.grad(loss), params(name))
    assert max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(expected)) > 100 * TOLERANCE
    close(found, expected)


LONG = 4096
CALLS = {
    "start": lambda model, params, text, length: model.start(params, text, length, LONG + 128),
    "teach": lambda model, params, text, length: model.teach(
        params, {"inputs": text, "length": length, "prompt": text, "prompt_length": length}
    ),
}


def gradient(model: Any, params: Any, text: jax.Array, length: jax.Array) -> Any:
    batch = {"inputs": text, "length": length, "prompt": text, "prompt_length": length}
    return jax.grad(lambda params: jnp.sum(model.states(params, batch)))(params)


def trace_call(call: Callable[..., Any], name: str, size: int) -> Any:
    """The jaxpr of a call on a row of so many tokens, under the numbers that hold outside."""
    model = MODELS[name]
    shapes = get_parameter_shapes(model)
    text, length = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, size), (1,)))
    jax.clear_caches()
    with sizes(**REAL):
        return jax.jit(functools.partial(call, model)).trace(shapes, text, length).jaxpr


REAL = {name: getattr(attention, name) for name in SMALL}


def variables(jaxpr: Any) -> Iterator[Any]:
    """All that a jaxpr and those inside of it compute or hold."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    yield from inner.constvars
    for equation in inner.eqns:
        yield from equation.outvars
        for each in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(each, "eqns"):
                yield from variables(each)


def largest(jaxpr: Any) -> int:
    """Entries of its largest array."""
    return max(math.prod(getattr(each.aval, "shape", ())) for each in variables(jaxpr))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (CALLS["start"], "grouped"),
        (CALLS["start"], "t5"),
        (CALLS["teach"], "grouped"),
        (CALLS["teach"], "t5"),
        (gradient, "grouped"),
        (gradient, "t5"),
    ],
    ids=["start", "encoder", "teach", "teach_t5", "gradient", "gradient_t5"],
)
def test_no_array_is_as_large_as_the_scores_of_a_long_prompt(call: Any, name: str) -> None:
    jaxpr = trace_call(call, name, LONG)
    assert largest(jaxpr) < LONG * LONG
    with pytest.MonkeyPatch.context() as patch:  # or nothing is seen here
        patch.setitem(REAL, "WHOLE_SCORES", LONG * LONG)
        patch.setitem(REAL, "WHOLE_PROMPT", LONG)
        assert largest(trace_call(call, name, LONG)) >= LONG * LONG


def test_states_of_a_long_prompt_are_held_for_a_chunk_only() -> None:
    """[B, T, F] of the feed-forward network is the widest: caches and embeddings are narrower."""
    config = dataclasses.replace(CAUSAL, d_ff=700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "wide", Causal(config))
        shapes = {each.aval.shape for each in variables(trace_call(CALLS["start"], "wide", LONG))}
    wide = [shape for shape in shapes if len(shape) > 1 and shape[-1] == config.d_ff]
    assert max(math.prod(shape) for shape in wide) == REAL["CHUNK"] * config.d_ff


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in ("grouped", "t5") else pytest.mark.slow)
        for n in MODELS
        if n != "longt5"  # its local scores fit into one array in longer texts too
    ],
)
def test_short_texts_have_no_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their programs are those of one array of scores; experts have a loop at any length."""
    config = MODELS[name].config
    if getattr(config, "mixtures", ()):
        dense = dataclasses.replace(config, mixtures=())
        monkeypatch.setitem(MODELS, name, Causal(dense))
    assert not loops(trace_call(CALLS["start"], name, REAL["WHOLE_PROMPT"]))
    assert not loops(trace_call(CALLS["teach"], name, REAL["WHOLE_PROMPT"]))
    assert loops(trace_call(CALLS["start"], name, math.isqrt(REAL["WHOLE_SCORES"]) + 1))


def loops(jaxpr: Any) -> bool:
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return any(
        equation.primitive.name in ("while", "scan")
        or any(
            loops(each)
            for each in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns"))
            if hasattr(each, "eqns")
        )
        for equation in inner.eqns
    )


@pytest.mark.slow
def test_sinks_take_their_share_of_the_weights_in_every_part() -> None:
    """As a key of its own of each head, which has no value."""
    keys = jax.random.split(jax.random.key(5), 3)
    q = jax.random.normal(keys[0], (3, 4, SIZE, 8))
    k, v = (jax.random.normal(key, (3, 2, SIZE, 8)) for key in keys[1:])
    sinks = jnp.array([-2.0, 0.0, 1.0, 4.0])[None, :, None, None]
    bias = attention.CausalBias(jnp.zeros(3, jnp.int32))
    mask = bias.tile(0, SIZE, 0, SIZE)
    scores = jnp.einsum("bhtd,bhcd->bhtc", q, jnp.repeat(k, 2, 1)) + mask
    sink = jnp.broadcast_to(sinks, (3, 4, SIZE, 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, sink], axis=-1), axis=-1)[..., :-1]
    expected = jnp.einsum("bhtc,bhcd->bhtd", weights, jnp.repeat(v, 2, 1))
    for part in (mask, bias, attention.make_cache_bias(bias, bias.start, SIZE)):
        close(attention.attention(q, k, v, part, sinks=sinks), expected)


def test_a_first_slot_that_nobody_else_sees_is_hidden_in_every_part() -> None:
    start = jnp.array([0, 3])
    bias = attention.WithoutFirst(attention.CausalBias(start), start)
    whole = np.asarray(bias.tile(0, 4, 0, 8))
    for query, key in ((0, 0), (2, 0), (1, 3), (0, 6)):
        part = bias.tile(query, 2, key, 2)
        np.testing.assert_array_equal(
            np.asarray(part) < 0, whole[:, :, query:, key:][..., :2, :2] < 0
        )
    seen = [[np.flatnonzero(keys == 0).tolist() for keys in row[0]] for row in whole]
    assert seen[0] == [[0], [1], [1, 2], [1, 2, 3]]
    assert seen[1] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
