"""Topologies, chips and predictions, as far as they need no compiler for TPUs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from command import command, run_refused

from specjax.accelerators import topology
from specjax.accelerators.chips import CHIPS, Chip
from specjax.accelerators.predict import Round, Share, build_round, free_tokens, speedup
from specjax.accelerators.program import _PARAMETER, WeightReads
from specjax.contracts.spec import Call
from specjax.decoding.strategy import autoregressive, speculative
from specjax.experiments.decode.acceptance import acceptances
from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import Mixture
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError
from specjax.theory.operations import TransformerShape, decoder_call, distinct_experts
from specjax.theory.speculative import expected_tokens, walltime_improvement

MODEL = T5(
    T5Config(
        vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=8, num_layers=1, num_decoder_layers=4
    )
)
XXL = "--config=configs/t5xxl_ende.py"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v9:2x2", ("'v9:2x2'", "v4, v5e, v5p, v6e")),
        ("v4", ("3 sides", "v4:2x2x1")),
        ("v5e:2x2x1", ("2 sides", "v5e:2x2")),
        ("v4:2x0x1", ("3 sides",)),
        ("v6e:2by4", ("2 sides",)),
        ("v5e:1000x1000", ("1,000,000 chips", "a pod of v5e has at most 256")),
        ("v4:1000x1000x1000", ("1,000,000,000 chips", "at most 4,096")),
        ("v5p:9999x1x1", ("9,999 chips", "at most 8,960")),
        ("v6e:16x17", ("272 chips", "at most 256")),
    ],
)
def test_a_topology_that_is_none_is_refused(name: str, words: tuple[str, ...]) -> None:
    done = command(XXL, "--dry_run", f"--config.topology={name}")
    run_refused(done.returncode, done.stderr, "config.topology", *words)


def test_a_topology_is_for_dry_runs_of_jobs_that_compile() -> None:
    done = command(XXL, "--config.topology=v4:2x2x1")
    run_refused(done.returncode, done.stderr, "config.topology", "--dry_run")
    done = command("--dry_run", "--config.topology=v4:2x2x1")
    run_refused(done.returncode, done.stderr, "config.topology", "'quickstart'")
    done = command(XXL, "--dry_run", "--config.acceptance=0.5")
    run_refused(done.returncode, done.stderr, "config.acceptance", "config.topology")


def test_without_libtpu_a_sentence_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="libtpu .*not installed; pip install 'jax\\[tpu\\]'"):
        topology.describe_topology("v4:2x2x1")


def test_a_mesh_takes_all_devices_of_a_topology() -> None:
    found = topology.Topology("v4:1x1x1", CHIPS["v4"], tuple(jax.devices()[:1]))
    assert found.mesh({"model": 1}).shape == {"data": 1, "model": 1}
    with pytest.raises(UserError, match="8 devices; config.topology 'v4:1x1x1' has 1"):
        found.mesh({"model": 8})


def test_help_says_how() -> None:
    assert "--config.topology=v4:2x2x1" in command("--helpfull").stdout


def test_a_round_takes_as_long_as_its_reads_or_its_arithmetic() -> None:
    chip = Chip(memory=1, bandwidth=100.0, flops=1000.0, axes=2, pod=1)
    assert Round(50.0, 100.0).seconds(chip) == 0.5
    assert Round(50.0, 2000.0).seconds(chip) == 2.0


def test_a_round_reads_weights_at_every_call_and_the_cache() -> None:
    shares = {
        "target": Share(MODEL, WeightReads(1000, 0), 100, ways=2, rows=3),
        "drafter": Share(MODEL, WeightReads(80, 70), 10, ways=1, rows=3),
    }
    calls = (Call("drafter", 2, 1), *[Call("drafter", 1, 1)] * 2, Call("target", 4, 4))
    found = build_round(calls, shares, cached=16, source=8)
    assert found.bytes == 1000 + 100 + 80 + 2 * 70 + 3 * 10
    shape = TransformerShape(
        4, 24, 48, 8, 4, 64, ff_matrices=2 + MODEL.config.gated, encoder_layers=1
    )
    target = 3 / 2 * decoder_call(shape, 4, 16, 8).flops
    drafter = 3 * sum(decoder_call(shape, n, 16, 8, 1).flops for n in (2, 1, 1))
    assert found.operations == pytest.approx(float(target + drafter))


def test_a_call_reads_the_experts_that_its_tokens_are_expected_to_have() -> None:
    """Those of all rows on the device; a width that the devices do not divide is read whole."""
    mixtures = (None, Mixture(8, 2, 6), Mixture(8, 2, 6))
    shape = CausalConfig(
        "mixtral", 20, d_model=4, d_ff=6, num_layers=3, num_heads=2, num_kv_heads=2, d_head=2,
        max_positions=9, rope=Rope(2), mixtures=mixtures,
    )  # fmt: skip
    share = Share(Causal(shape), WeightReads(100, 0), 30, ways=2, rows=3, itemsize=2)
    expert = 3 * 4 * 6 * 2
    read = float(distinct_experts(8, 2, 3 * 5)) * expert / 2
    assert share.bytes([Call("target", 5, 5)]) == pytest.approx(100 + 30 + 2 * read)
    exit = Call("target", 5, 5, exit=2)
    assert share.bytes([exit]) == pytest.approx(100 + 30 * 2 / 3 + read)
    whole = dataclasses.replace(share, ways=4)
    assert whole.expert_bytes(exit) == pytest.approx(2 * read)


def test_the_program_does_not_say_which_experts_it_reads() -> None:
    path = "params['target']['layers_0']['ff']{}"
    for leaf, counted in (("['gates']", False), ("['downs']", False), ("['up']['kernel']", True)):
        assert bool(_PARAMETER.match(path.format(leaf))) is counted


def test_an_early_exit_reads_its_layers_of_the_cache() -> None:
    """The target's first layer drafts twice in a loop; the target goes on from there."""
    share = Share(MODEL, WeightReads(1000, 50), 400, ways=1, rows=1)
    calls = (*[Call("target", 1, 1, exit=1)] * 3, Call("target", 3, 3, resume_from=1))
    assert share.bytes(calls) == 1000 + 2 * 50 + 400 * (3 / 4 + 3 / 4)


def test_tokens_are_free_until_arithmetic_takes_as_long_as_reads() -> None:
    share = Share(MODEL, WeightReads(10_000, 0), 0, ways=1, rows=2)
    six = share.operations([Call("target", 6, 6)], cached=16, source=8)
    for flops, free in ((1.01, 6), (0.99, 5), (1e-6, 0)):
        chip = Chip(memory=1, bandwidth=1.0, flops=flops * six / 10_000, axes=2, pod=1)
        assert free_tokens(share, "target", chip, cached=16, source=8) == free


def test_the_speedup_is_theorem_3_8_with_the_times_of_rounds() -> None:
    assert speedup(0.75, 7, 2.0, 2.0) == pytest.approx(float(expected_tokens(0.75, 7)))
    took = 1 + 7 * 0.02
    assert speedup(0.75, 7, took, 1.0) == pytest.approx(float(walltime_improvement(0.75, 7, 0.02)))


STRATEGIES = {"autoregressive": autoregressive(), "a": speculative(3), "b": speculative(5)}


def test_acceptance_is_a_number_or_one_for_each_or_a_runs(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    entries = {"a": {"acceptance_rate": 0.5}, "autoregressive": {"acceptance_rate": 0.0}}
    file.write_text(json.dumps({"strategies": entries}))
    assert acceptances("", STRATEGIES) == {}
    assert acceptances("0.75", STRATEGIES) == {"a": 0.75, "b": 0.75}
    assert acceptances("b=0.5, a=1", STRATEGIES) == {"a": 1.0, "b": 0.5}
    assert acceptances(str(file), STRATEGIES) == {"a": 0.5}
    file.write_text(json.dumps({"strategies": {"c": {}}}))
    with pytest.raises(UserError, match="has measured none of a, b"):
        acceptances(str(file), STRATEGIES)


@pytest.mark.parametrize("given", ["1.5", "often", "nan", "a=", "autoregressive=0.5", "x.json"])
def test_another_acceptance_is_refused(given: str) -> None:
    with pytest.raises(UserError, match="config.acceptance"):
        acceptances(given, STRATEGIES)


def test_the_chips_are_those_of_the_documentation() -> None:
    ratios = {name: chip.flops / chip.bandwidth for name, chip in CHIPS.items()}
    assert np.allclose(list(ratios.values()), [229.2, 240.5, 166.0, 559.8], atol=0.1)
