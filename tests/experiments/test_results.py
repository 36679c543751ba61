"""What calls count for in the standardized walltime improvement."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import pytest

from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.decode.model_costs import part_prices
from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import Mixture
from specjax.models.positions import Rope
from specjax.models.quantized_weights import count_numbers
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config

CONFIG = T5Config(
    vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_heads=2, num_layers=1, num_decoder_layers=3
)


def size(config: T5Config) -> int:
    return count_numbers(T5(config).init(jax.random.key(0)))


@pytest.mark.slow
@pytest.mark.parametrize("named", [{}, {"target": 100.0}])
def test_an_early_exit_counts_for_the_layers_that_run(named):
    whole = size(CONFIG)
    unit = named.get("target", whole)
    model = T5(CONFIG)
    loaded = SimpleNamespace(model=model, params=model.init(jax.random.key(0)))
    job = SimpleNamespace(
        config=decode_config(prices=named), pair=SimpleNamespace(members={"target": loaded})
    )
    prices = part_prices(job, EarlyExit(2, exit=1))
    baseline = size(dataclasses.replace(CONFIG, num_decoder_layers=1)) / whole
    assert prices["target"] == unit
    assert prices["target[:1]"] / unit == pytest.approx(baseline, rel=0.01)  # but for norms
    assert prices["target[:1] states"] == prices["target[:1]"]


def test_a_mixture_counts_for_the_experts_of_a_token():
    shape = {
        "vocab_size": 20, "d_model": 8, "d_ff": 6, "num_heads": 2, "num_kv_heads": 2, "d_head": 4,
        "max_positions": 9, "num_layers": 2, "rope": Rope(4),
    }  # fmt: skip
    few, many = (
        Causal(CausalConfig("mixtral", **shape, mixtures=(None, Mixture(experts, 2, 6))))
        for experts in (2, 8)
    )
    loaded = {
        name: SimpleNamespace(model=model, params=get_parameter_shapes(model))
        for name, model in (("target", few), ("drafter", many))
    }
    job = SimpleNamespace(config=decode_config(), pair=SimpleNamespace(members=loaded))
    prices = part_prices(job, Neural(2, model="drafter"))
    assert prices["drafter"] - prices["target"] == 8 * (8 - 2)  # the router's columns
