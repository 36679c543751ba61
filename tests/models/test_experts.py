"""Mixtures of experts: what they compute, in each of the ways, and for whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
from decodes import run, texts
from flax.traverse_util import flatten_dict

from specjax.decoding.strategy import Strategy, autoregressive, strategy
from specjax.hf.huggingface import load
from specjax.models.experts import (
    Experts,
    Groups,
    Mixture,
    Router,
    drop_beyond_capacity,
    gate_by,
    gather_experts,
    scan_experts,
    weigh_in_turn,
)
from specjax.models.quantized_weights import (
    EXPERTS,
    WeightFormat,
    is_quantized,
    quantize,
    quantize_params,
)
from specjax.training.surgery import take

GOLDEN = Path(__file__).parents[1] / "golden"
MIXTURE = Mixture(experts=5, chosen=2, d_ff=6)
WIDTH, TOKENS = 4, 7
LAYER = Experts(MIXTURE, "silu")


@pytest.fixture(scope="module")
def drawn():
    """Parameters of a layer, and states [1, TOKENS, WIDTH]."""
    x = jax.random.normal(jax.random.key(0), (1, TOKENS, WIDTH))
    return LAYER.init(jax.random.key(1), x)["params"], x


def mix_experts(params, x: np.ndarray, normalized: bool) -> np.ndarray:
    """Token by token and expert by expert: Mixtral's equation of section 2.1."""
    made = np.zeros_like(x)
    for token, state in enumerate(x):
        logits = state @ np.asarray(params["router"]["logits"]["kernel"])
        shares = np.exp(logits) / np.exp(logits).sum()
        best = np.argsort(-shares)[: MIXTURE.chosen]
        for expert in best:
            gate = state @ params["gates"][expert]
            inner = gate / (1 + np.exp(-gate)) * (state @ params["ups"][expert])
            weight = shares[expert] / (shares[best].sum() if normalized else 1.0)
            made[token] += weight * (inner @ params["downs"][expert])
    return made


@pytest.mark.parametrize("normalized", [True, False])
def test_a_layer_is_the_weighted_sum_of_the_likeliest_experts(drawn, normalized: bool) -> None:
    params, x = drawn
    layer = Experts(dataclasses.replace(MIXTURE, normalized=normalized), "silu")
    found = layer.apply({"params": params}, x)
    expected = mix_experts(params, np.asarray(x[0], np.float64), normalized)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    few = layer.apply({"params": params}, x[:, :1])  # so few picks that matrices are gathered
    np.testing.assert_allclose(few[0], expected[:1], atol=1e-5)


def route_tokens(mixture: Mixture, kernel: np.ndarray, correction: np.ndarray, x: np.ndarray):
    """Weights [N, E] of DeepSeek-V3's router, token by token (equations 14 to 16)."""
    made = np.zeros((len(x), mixture.experts))
    for row, state in zip(made, x, strict=True):
        scores = 1 / (1 + np.exp(-(state @ kernel)))
        ranked = scores + correction
        groups = ranked.reshape(mixture.groups.count, -1)
        best = np.sort(groups, axis=-1)[:, -mixture.groups.summed :].sum(-1)
        for group in np.argsort(-best)[mixture.groups.chosen :]:
            groups[group] = -np.inf
        chosen = np.argsort(-ranked)[: mixture.chosen]
        row[chosen] = mixture.scale * scores[chosen] / scores[chosen].sum()
    return made


def test_a_correction_and_groups_select_experts_and_leave_their_weights() -> None:
    mixture = Mixture(
        12, 3, 4, scoring="sigmoid", corrected=True, groups=Groups(4, 2, 2), scale=2.5
    )
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(40, 5)), rng.normal(size=(5, 12))
    correction = rng.uniform(-0.5, 0.5, 12)
    params = {"logits": {"kernel": jnp.array(kernel)}, "correction": jnp.array(correction)}
    weights, chosen = Router(mixture).apply({"params": params}, jnp.array(x))
    found = np.zeros((40, 12))
    np.put_along_axis(found, np.asarray(chosen), np.asarray(weights), axis=1)
    np.testing.assert_allclose(found, route_tokens(mixture, kernel, correction, x), atol=1e-5)
    plain = Router(dataclasses.replace(mixture, groups=None)).apply({"params": params}, x)[1]
    assert np.any(np.sort(plain) != np.sort(chosen))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (Groups(5, 1, 2), "n_group is 5; it must divide the 12 experts into groups of at least 2"),
        (Groups(12, 3, 2), "n_group is 12; it must divide"),
        (Groups(4, 5, 2), "topk_group is 5; it must be at most the 4 groups, and so many that"),
        (Groups(6, 1, 2), "topk_group is 1; it must be .* that they have the 3 experts"),
    ],
)
def test_groups_that_cannot_hold_a_tokens_experts_are_refused(groups: Groups, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Mixture(12, 3, 4, groups=groups)


def test_all_tokens_have_the_shared_expert_as_well(drawn) -> None:
    """Its share is the sigmoid of one product (Qwen2-MoE), or one."""
    x = drawn[1]
    shape = dataclasses.replace(MIXTURE, shared=3, gated_shared=True)
    params = Experts(shape, "silu").init(jax.random.key(3), x)["params"]
    shared = {name: one["kernel"] for name, one in params["shared"]["expert"].items()}
    alone = (jax.nn.silu(x @ shared["gate"]) * (x @ shared["up"])) @ shared["down"]
    share = jax.nn.sigmoid(x @ params["shared"]["token_gate"]["kernel"])
    routed = LAYER.apply({"params": params}, x)
    found = Experts(shape, "silu").apply({"params": params}, x)
    np.testing.assert_allclose(found, routed + share * alone, atol=1e-5)
    ungated = dataclasses.replace(shape, gated_shared=False)
    found = Experts(ungated, "silu").apply({"params": params}, x)
    np.testing.assert_allclose(found, routed + alone, atol=1e-5)


def test_both_ways_give_the_same_numbers_and_gradients(drawn) -> None:
    """Up to the order of sums of float32."""
    params, x = drawn
    matrices = params["gates"], params["ups"], params["downs"]
    chosen = jnp.array([[0, 3], [3, 1], [0, 1], [4, 3], [1, 0], [3, 4], [0, 4]])
    weights = jax.random.uniform(jax.random.key(2), chosen.shape)

    def total(matrices, x, way):
        return jnp.sum(jnp.sin(way(x, weights, chosen, matrices, gate_by("silu"))))

    made = [
        jax.value_and_grad(total, (0, 1))(matrices, x[0], way)
        for way in (gather_experts, scan_experts)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *made)


def test_the_later_tokens_of_a_text_skip_a_full_expert() -> None:
    """Each of two texts fills the experts by itself; a token of two experts may lose one."""
    chosen = jnp.array([[0, 1], [0, 2], [0, 1], [2, 0], [0, 1], [1, 2]])
    mixture = dataclasses.replace(MIXTURE, capacity=1)
    found = drop_beyond_capacity(jnp.ones((6, 2)), chosen, 2, mixture)
    assert found.tolist() == [[1, 1], [0, 1], [0, 0], [1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize("way", [gather_experts, scan_experts])
def test_a_token_does_not_depend_on_those_beside_it(drawn, way: Callable) -> None:
    """Bit for bit, whichever experts the others have."""
    params, x = drawn
    matrices = params["gates"], params["ups"], params["downs"]
    weights = jnp.full((TOKENS, 2), 0.5)
    call = jax.jit(lambda x, chosen: way(x, weights, chosen, matrices, gate_by("silu")))
    chosen = jnp.tile(jnp.array([[3, 1]]), (TOKENS, 1))
    first = call(x[0], chosen)
    other = call(x[0].at[1:].multiply(-3.0), chosen.at[1:].set(jnp.array([2, 0])))
    np.testing.assert_array_equal(first[0], other[0])
    assert np.abs(first[1:] - other[1:]).min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [2, TOKENS])
def test_experts_read_states_scaled_by_sigmoids_of_their_logits(drawn, tokens: int) -> None:
    """In either way. Of logits whose sigmoids are equal the larger one selects."""
    params, x = drawn
    params = params | {"router": {"logits": {"kernel": jnp.eye(WIDTH, MIXTURE.experts) * 60}}}
    mixture = dataclasses.replace(
        MIXTURE, chosen=1, normalized=False, scoring="sigmoid", weighted_inputs=True
    )
    x = jnp.abs(x[:, :tokens]).at[0, 0].set(jnp.array([1.0, 3.0, 2.0, 0.0]))
    found = Experts(mixture, "silu").apply({"params": params}, x)
    for state, made in zip(x[0], found[0], strict=True):
        expert = int(jnp.argmax(state))
        read = state * jax.nn.sigmoid(60 * state[expert])
        inner = jax.nn.silu(read @ params["gates"][expert]) * (read @ params["ups"][expert])
        np.testing.assert_allclose(made, inner @ params["downs"][expert], atol=1e-5)


def test_each_expert_is_weighed_against_near_ones_that_are_left() -> None:
    """4.5 against 4 and 3.5, then 4 against 3.5; 1 is smaller than either by more than half."""
    logits = jnp.array([[4.0, 1.0, 3.5, 4.5], [-3.0, -1.0, -2.0, -9.0]])
    weights, chosen = weigh_in_turn(logits, 2, jitter=0.25)
    assert chosen.tolist() == [[3, 0], [1, 2]]
    first = 1 / (1 + np.exp(-0.5) + np.exp(-1.0)), 1 / (1 + np.exp(-0.5))
    second = 1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(weights, [first, second], rtol=1e-6)


def test_more_experts_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(
        ValueError, match="num_experts_per_tok is 3; it must be from 1 to the 2 exp"
    ):
        Mixture(2, 3, 8)


def test_quantized_weights_leave_the_router_as_it_is() -> None:
    whole = load(GOLDEN / "qwen3_moe").params
    params = whole["layers_1"]
    small = {
        where
        for where, leaf in flatten_dict(params).items()
        if WeightFormat("int8", 0).applies_to(where, leaf.shape)
    }
    experts = {("ff", name) for name in EXPERTS}
    assert small == {("attention", w, "kernel") for w in "qkvo"} | experts
    gate = ("ff", "shared", "token_gate", "kernel")
    assert not WeightFormat("int8", 0).applies_to(gate, (8, 1))
    read = load(GOLDEN / "qwen3_moe", weights="int8").params
    made = quantize_params(whole, WeightFormat.parse("int8"))
    jax.tree.map(np.testing.assert_array_equal, read, made)


@pytest.mark.parametrize("spelled", ["int8", "int4:2"])
def test_experts_have_the_scales_that_each_would_have_alone(drawn, spelled: str) -> None:
    weights = WeightFormat.parse(spelled)
    for stack in (drawn[0][name] for name in EXPERTS):
        together = quantize(stack, weights)
        for number, kernel in enumerate(stack):
            baseline = quantize(kernel, weights)
            np.testing.assert_array_equal(together.qvalue[number], baseline.qvalue)
            np.testing.assert_array_equal(together.scale[number], baseline.scale)


@pytest.mark.parametrize("tokens", [1, TOKENS], ids=["gathered", "by_expert"])
@pytest.mark.parametrize("spelled", ["int8", "int4:2"])
def test_small_experts_compute_with_the_weights_they_stand_for(drawn, spelled, tokens) -> None:
    """And with int8 nearly what the wide ones do."""
    params, x = drawn[0], drawn[1][:, :tokens]
    small = params | {name: quantize(params[name], WeightFormat.parse(spelled)) for name in EXPERTS}
    whole = jax.tree.map(
        lambda a: qwix.dequantize(a) if is_quantized(a) else a, small, is_leaf=is_quantized
    )
    found, expected, wide = (LAYER.apply({"params": p}, x) for p in (small, whole, params))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if spelled == "int8":
        np.testing.assert_allclose(found, wide, atol=0.02 * float(jnp.abs(wide).max()))
    assert np.abs(found - wide).max() > 0.0


@pytest.mark.parametrize("tokens", [1, TOKENS], ids=["gathered", "by_expert"])
def test_no_wide_experts_leave_the_loop(drawn, tokens: int) -> None:
    """XLA moves what does not change out of loops; here under the passes of a real run."""
    params, x = drawn[0], drawn[1][:, :tokens]
    small = params | {name: quantize(params[name], WeightFormat("int8", 0)) for name in EXPERTS}

    def run(x, params):
        step = lambda _, x: jnp.tanh(LAYER.apply({"params": params}, x))  # noqa: E731
        return jax.lax.fori_loop(0, 9, step, x)

    options = {"xla_disable_hlo_passes": ""}
    text = jax.jit(run).lower(x, small).compile(options).as_text()
    assert "s8[5,4,6]" in text
    assert "f32[5,4,6]" not in text and "f32[5,6,4]" not in text


@pytest.mark.slow
def test_layers_that_are_taken_keep_their_kind() -> None:
    loaded = load(GOLDEN / "qwen3_moe")
    smaller, params = take(loaded.model, loaded.params, [1])
    assert smaller.config.mixtures == loaded.model.config.mixtures[1:]
    assert "router" in params["layers_0"]["ff"] and "layers_1" not in params


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_drafts_of_every_kind_leave_the_tokens(name: str) -> None:
    """Early exits that verification goes on from, and trees of copies."""
    loaded = load(GOLDEN / name)
    models, params = (("target", loaded.model),), {"target": loaded.params}
    prompts = [[5, 9, 17, 5, 9, 17, 5, 9], [4, 4, 8, 4, 4]]

    def decode_with(strategy: Strategy) -> list[list[int]]:
        return texts(run(models, params, strategy, prompts, 20))

    expected = decode_with(autoregressive())
    assert decode_with(strategy(drafter="early_exit", exit=1, length=3)) == expected
    assert decode_with(strategy(drafter="prompt_lookup", length=4, branches=2)) == expected
