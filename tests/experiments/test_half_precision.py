"""`config.invariant`, and what results say of outputs that differ."""

from __future__ import annotations

import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from exits import MODELS, PARAMS, Uncached
from tiny import corpus

import specjax
from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    decode_config,
    neural_spec,
    tune_config,
)
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import results
from specjax.experiments.decode.records import StrategyMeasurement
from specjax.experiments.decode.results import differences
from specjax.experiments.decode.strategies import common_width
from specjax.experiments.tune.space import make_space
from specjax.measuring import stopwatch
from specjax.runtime.errors import UserError


def small(**changes):
    strategies = {
        "autoregressive": AUTOREGRESSIVE,
        "speculative": neural_spec("drafter", 3),
        "exit": {"drafter": "early_exit", "exit": 1, "length": 2},
    }
    given = {"target": "t", "drafter": "d", "strategies": strategies, "dtype": "bfloat16"}
    return decode_config(**given | changes)


@pytest.mark.slow
def test_a_run_with_one_width_ends_with_results(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "write_report", lambda *_: None)  # seconds of drawing
    monkeypatch.setattr(stopwatch, "_compile", lambda run: None)
    monkeypatch.setattr(stopwatch.Stopwatch, "_loop", lambda *_: lambda steps: jnp.int32(0))
    monkeypatch.setattr(stopwatch, "_seconds", lambda run, steps: 1e-3 * (1 + steps))
    config = small(
        target=str(pair / "target"), drafter=str(pair / "drafter"), metric="bleu",
        source_file=str(pair / "source.txt"), reference_file=str(pair / "reference.txt"),
        examples=5, batch_size=2, max_new_tokens=8, bucket=64, repeats=1, invariant=True,
    )  # fmt: skip
    found = decode.run(config, tmp_path)["strategies"]
    assert found["autoregressive"]["tokens"] > 0
    for entry in found.values():
        assert entry["identical_to_target"] == 1.0 and entry["differing"] == 0
        assert entry["predicted"]["with_v"] is entry["speedup_predicted"] is None
        assert entry["time"]["target"] is None
    flops = {name: each["operations"]["target"]["flops"] for name, each in found.items()}
    per_call = {n: flops[n] * found[n]["tokens"] / found[n]["calls"]["target"] for n in flops}
    assert per_call["exit"] == pytest.approx(per_call["speculative"], rel=0.05)  # all layers
    assert json.loads((tmp_path / "results.json").read_text())["config"]["invariant"]


def test_the_width_holds_the_widest_draft():
    strategies = {"a": specjax.autoregressive(), "b": specjax.speculative(5)}
    assert common_width(small(invariant=True), strategies) == 6
    assert common_width(small(), strategies) == 0


def test_what_cannot_be_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="strategies.calm: CALM"):
        common_width(
            small(invariant=True), {"calm": specjax.strategy(reader="calm", threshold=0.5)}
        )
    with pytest.raises(UserError, match="config.base.invariant is True; it must be False"):
        make_space(tune_config(small(invariant=True), {}))


@pytest.mark.parametrize("invariant", [True, -1, 2.0, "4", None])
def test_a_generator_takes_a_number_of_tokens(pair, invariant):
    target = specjax.load(pair / "target")
    with pytest.raises(UserError, match="invariant is .*; it must be an integer of at least 0"):
        specjax.Generator(target, invariant=invariant)
    with pytest.raises(UserError, match="invariant is 1; it must be 0 .off. or at least 3"):
        early = specjax.strategy(drafter="early_exit", exit=1, length=2)
        specjax.Generator(target, strategy=early, invariant=1)


@pytest.mark.slow
def test_a_stream_may_have_the_shape_of_a_batch(pair):
    target = specjax.load(pair / "target", "bfloat16")
    made = specjax.Generator(target, max_new_tokens=8, bucket=64, invariant=3)
    prompts = [each.source for each in corpus()[:2]]
    texts = made(prompts, batch_size=3).texts
    assert ["".join(made.stream(prompt, batch_size=3)) for prompt in prompts] == texts


def measure(rows: list[list[int]]) -> StrategyMeasurement:
    return StrategyMeasurement(np.zeros((1, 1)), np.zeros((1, 1)), [rows], [])


def test_examples_that_differ_are_told_apart_by_the_target():
    model, params = MODELS["llama"], PARAMS["llama"]
    prompt = [3, 4, 5]
    distribution = Uncached("llama").logits(params, (), prompt)
    best, second, worst = (int(np.argsort(distribution)[::-1][rank]) for rank in (0, 1, -1))
    decoder = SimpleNamespace(target_model=model)
    job = SimpleNamespace(
        config=small(dtype="float32"),
        prompts=[prompt] * 3,
        pair=SimpleNamespace(target=SimpleNamespace(params=params)),
        generators={"autoregressive": SimpleNamespace(decoder=decoder)},
    )
    base = measure([[best, 1]] * 3)
    own = measure([[best, 1], [second, 1], [worst, 1]])
    speculative = specjax.speculative(3)
    assert differences(job, speculative, own, base) == {"differing": 2, "near_ties": 0}
    job.config.dtype = "bfloat16"  # rounds coarsely enough for this model's first two to tie
    job.pair.target.params = _tie_logits(params, best, second)
    assert differences(job, speculative, own, base) == {"differing": 2, "near_ties": 1}
    sampled = specjax.speculative(3, temperature=1.0)
    assert differences(job, sampled, own, base) == {"differing": None, "near_ties": None}


def _tie_logits(params, first: int, second: int):
    """Parameters under which two tokens have one logit."""
    kernel = params["head"]["kernel"]
    head = {"kernel": kernel.at[:, second].set(kernel[:, first])}
    return params | {"head": head}
