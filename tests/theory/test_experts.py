"""Experts that a call touches: the formula, and what a model's router counts."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import Mixture, Router
from specjax.models.positions import Rope
from specjax.theory.operations import (
    ExpertsShape,
    TransformerShape,
    decoder_call,
    distinct_experts,
    verification_costs,
)
from specjax.theory.speculative import optimal_draft_length

EXPERTS, CHOSEN, LAYERS = 16, 2, 2
MIXED = TransformerShape(
    LAYERS, 8, 20, 2, 4, 50, ff_matrices=3, mixtures=(ExpertsShape(EXPERTS, CHOSEN, 6), None)
)


def test_uniform_routing_touches_as_many_experts_as_the_formula_says() -> None:
    """20,000 draws: the mean is within four standard errors, of at most 1.5 experts each."""
    rng = np.random.default_rng(0)
    for tokens in (1, 3, 8):
        chosen = rng.permuted(np.tile(np.arange(EXPERTS), (20_000, tokens, 1)), axis=-1)[
            ..., :CHOSEN
        ]
        counted = count_distinct(chosen.reshape(20_000, -1))
        expected = float(distinct_experts(EXPERTS, CHOSEN, tokens))
        assert counted.mean() == pytest.approx(expected, abs=4 * 1.5 / np.sqrt(20_000))


def count_distinct(chosen: np.ndarray) -> np.ndarray:
    """Distinct numbers [N] in each of the rows [N, M]."""
    ranked = np.sort(chosen, axis=-1)
    return 1 + (np.diff(ranked, axis=-1) > 0).sum(-1)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "least"), [(200.0, 0.95), (50.0, 0.8)])
def test_a_random_model_touches_nearly_as_many_experts_as_predicted(
    scale: float, least: float
) -> None:
    """Never more, but for the standard error of 1.7%; fewer as experts are not equally popular, by
    1 to 3% here, and as attention makes tokens of a row alike, the more the smaller embeddings are.
    """
    mixture = Mixture(EXPERTS, CHOSEN, d_ff=8)
    model = Causal(
        CausalConfig(
            family="mixtral", vocab_size=500, d_model=64, d_ff=8, num_layers=LAYERS, num_heads=2,
            num_kv_heads=2, d_head=8, max_positions=64, rope=Rope(8), mixtures=(mixture,) * LAYERS,
        )
    )  # fmt: skip
    params = model.init(jax.random.key(0))
    params["embedding"] *= scale
    tokens = jnp.array(np.random.default_rng(1).integers(0, 500, (256, 8)), jnp.int32)
    length = jnp.full(256, 8, jnp.int32)

    def chosen_by(module: nn.Module, _: str) -> bool:
        return isinstance(module, Router)

    _, kept = model.module.apply(
        {"params": params}, tokens, length, capture_intermediates=chosen_by
    )
    for layer in range(LAYERS):
        router = kept["intermediates"][f"layers_{layer}"]["ff"]["router"]["__call__"][0]
        chosen = np.asarray(router[1]).reshape(256, 8, CHOSEN)
        for fed in (1, 2, 4, 8):
            counted = count_distinct(chosen[:, :fed].reshape(256, -1)).mean()
            predicted = float(distinct_experts(EXPERTS, CHOSEN, fed))
            assert least * predicted < counted < 1.02 * predicted


def test_a_token_is_multiplied_with_its_experts_and_a_call_reads_those_of_all() -> None:
    d, a, expert, dense = 8, 8, 3 * 8 * 6, 3 * 8 * 20
    layers = LAYERS * 4 * d * a + d * EXPERTS + dense
    assert MIXED.used_weights == layers + CHOSEN * expert
    assert MIXED.decoder_weights == layers + EXPERTS * expert
    assert MIXED.idle_weights == (EXPERTS - CHOSEN) * expert
    read = distinct_experts(EXPERTS, CHOSEN, 4) * expert
    assert MIXED.read_experts(4) == pytest.approx(float(read))
    one, four = decoder_call(MIXED, 1, 10), decoder_call(MIXED, 4, 10)
    activations = LAYERS * (8 * d + 4 * a) + 2 * (CHOSEN * 6 + 20)
    moved = layers + read + LAYERS * 2 * a * (10 + 8) + 4 * activations + d * 50 + 4 * 50
    assert four.memory == pytest.approx(float(moved))
    pairs = 4 * 10 + 10
    flops = 8 * MIXED.used_weights + LAYERS * 4 * a * pairs + 8 * d * 50
    assert four.flops == flops
    assert four.memory > one.memory + read - CHOSEN * expert


def test_a_shared_expert_is_read_by_every_call() -> None:
    shared = dataclasses.replace(MIXED, mixtures=(ExpertsShape(EXPERTS, CHOSEN, 6, 5), None))
    assert shared.used_weights == MIXED.used_weights + 3 * 8 * 5
    assert shared.read_weights(4) == pytest.approx(MIXED.read_weights(4) + 3 * 8 * 5)
    assert shared.idle_weights == MIXED.idle_weights
    assert shared.activations == MIXED.activations + 2 * 5


def test_layers_of_a_mixture_have_their_own_weights() -> None:
    first, second = MIXED.slice_layers(0, 1), MIXED.slice_layers(1, 2)
    assert first.mixtures == MIXED.mixtures[:1] and second.used_weights == second.decoder_weights
    assert first.used_weights + second.used_weights == MIXED.used_weights
    with pytest.raises(ValueError, match="mixtures has 1 entries; it must have one for each of"):
        TransformerShape(2, 8, 20, 2, 4, 50, mixtures=MIXED.mixtures[:1])
    with pytest.raises(ValueError, match="chosen is 3; it must be at most the 2 experts"):
        ExpertsShape(2, 3, 6)


def test_drafts_for_a_mixture_are_shorter_than_for_a_dense_model() -> None:
    """Of the shape of Qwen3-30B-A3B beside a dense one of as many active parameters."""
    common = {"d_model": 2048, "heads": 32, "kv_heads": 4, "d_head": 128, "vocab": 151_936}
    dense = TransformerShape(48, d_ff=6144, ff_matrices=3, **common)
    mixtures = (ExpertsShape(128, 8, 768),) * 48
    mixed = TransformerShape(48, d_ff=6144, ff_matrices=3, mixtures=mixtures, **common)
    assert mixed.used_weights == dense.used_weights + 48 * 2048 * 128  # the routers
    costs = [verification_costs(shape, 7, cached=256) for shape in (dense, mixed)]
    assert costs[0][-1] < 1.03 and 4.0 < costs[1][-1] < 6.5
    best = [int(optimal_draft_length(0.8, 0.05, 7, v)) for v in costs]
    assert best[0] == 7 and best[1] <= 2
