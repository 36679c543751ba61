"""The benchmark of predictions: its strategies, lengths that were not priced, the errors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded_rounds import rounds

from specjax.decoding.strategy import Strategy
from specjax.drafting.neural import Neural
from specjax.experiments.decode.records import Prices
from specjax.experiments.tune.predict import Probe
from specjax.measuring.cost import Costs
from specjax.measuring.in_place import RoundPrice

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import predictions  # noqa: E402

COSTS = Costs({"target": {1: 2.0, 2: 2.2, 5: 4.0}, "drafter": {1: 0.2, 2: 0.3}})


def test_chains_have_every_length_and_each_sampling_its_baseline():
    chain = {"drafter": "neural", "model": "drafter"}
    tree = {"drafter": "neural", "model": "drafter", "widths": [2, 1], "temperature": 0.7}
    args = argparse.Namespace(chain=[chain], strategy=[tree], lengths=(2, 1))
    specs, families = predictions.strategies_of(args)
    assert families == [{1: "neural_1", 2: "neural_2"}]
    assert specs == {
        "autoregressive": {"drafter": "none"},
        "alone_1": {"drafter": "none", "temperature": 0.7},
        "neural_1": {**chain, "length": 1},
        "neural_2": {**chain, "length": 2},
        "given_0_neural": tree,
    }


def test_a_length_between_priced_ones_is_predicted_without_its_own_price(monkeypatch):
    """Beyond its calls a round takes 0.5 target steps and each of its tokens 0.1."""

    def took(length: int) -> float:
        calls = 0.3 + (length - 1) * 0.2 + COSTS.milliseconds("target", length + 1)
        return calls / 2.0 + 0.5 + 0.1 * length

    lengths = {1: "a", 2: "b", 4: "c"}
    strategies = {name: Strategy(Neural(length)) for length, name in lengths.items()}
    seen = {
        "a": (rounds([1, 2], [1, 1], calls=2), 1.5 / took(1)),
        "c": (rounds([2, 4], [4, 4], calls=8), 3.0 / took(4)),
    }

    def probe_of(job, name, measured, prices, shorter):
        assert name != "b"
        return Probe(strategies[name], *seen[name], shorter=shorter)

    monkeypatch.setattr(predictions, "probe_of", probe_of)
    decoder = SimpleNamespace(decoder=SimpleNamespace(target="target"))
    job = SimpleNamespace(strategies=strategies, generators=dict.fromkeys("abc", decoder))
    prices = Prices({strategies["a"].settings: COSTS}, dict.fromkeys("ac", RoundPrice(2.0, 1.0)))
    found = {name: {"other_lengths": None} for name in "abc"}
    predictions.add_other_lengths(job, lengths, (), {}, prices, found)
    assert found["a"]["other_lengths"] is found["c"]["other_lengths"] is None
    assert found["b"]["other_lengths"] == pytest.approx(2.5 / took(2))


def test_errors_count_on_either_side():
    entry = {"in_place": 1.0, "other_lengths": None, "calls_alone": 2.0, "measured": 1.0}
    found = {
        "a": entry | {"in_place": 1.02},
        "b": entry | {"in_place": 0.9},
        "c": entry | {"in_place": 1.05, "measured": 1.05, "calls_alone": 2.1},
    }
    overall = predictions.summary_of(found)
    assert overall["in_place"] == pytest.approx({"median": 2.0, "largest": 10.0})
    assert overall["calls_alone"] == pytest.approx({"median": 100.0, "largest": 100.0})
    assert "other_lengths" not in overall
