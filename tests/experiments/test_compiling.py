"""What a decode experiment compiles before it decodes, and what it shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from pairs import pair_fields
from sessions import make_session

from specjax.data.batching import Batch
from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec
from specjax.experiments.decode import compiling
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.compiling import missing_programs, shape_groups
from specjax.experiments.decode.session import Session
from specjax.experiments.pairs import load_pair
from specjax.pair import Pair
from specjax.runtime.progress import progress

ALIKE = {
    "lenient": neural_spec("drafter", 2, rule="lenient", lenience=0.3),
    "more_lenient": neural_spec("drafter", 2, rule="lenient", lenience=0.6),
    "sampled": {"drafter": "none", "temperature": 1.0},
    "cooler": {"drafter": "none", "temperature": 0.5},
}
"""Two programs: of each pair the strategies differ in a number."""


@pytest.fixture(scope="module")
def models(pair) -> Pair:
    return load_pair(decode_config(**pair_fields(pair)))


def make_job(pair, models, strategies: dict, **changes) -> Session:
    strategies = {"autoregressive": AUTOREGRESSIVE, **strategies}
    fields = {**pair_fields(pair), "examples": 4, "max_new_tokens": 7, "repeats": 1, **changes}
    return make_session(decode_config(strategies=strategies, **fields), pair, models)


@contextmanager
def list_decodes() -> Iterator[list[str]]:
    """Names of the decodes that XLA compiles meanwhile."""
    names: list[str] = []

    def hear(event: str, seconds: float, fun_name: str = "", **_: object) -> None:
        if event.endswith("backend_compile_duration") and "generate" in fun_name:
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)


@pytest.mark.slow
def test_strategies_that_differ_in_numbers_share_a_program_of_each_shape(pair, models):
    job = make_job(pair, models, ALIKE, bucket=64)
    (batch,) = {one.shape: one for one in job.batches()}.values()
    programs = missing_programs(job, [batch])
    shared = sorted(sorted(name for name, _ in program.runs) for program in programs.values())
    assert shared == [["autoregressive"], ["cooler", "sampled"], ["lenient", "more_lenient"]]
    with list_decodes() as names:
        decode.warm_up(job, [batch])
        assert len(names) == 3
        assert not missing_programs(job, [batch])
    assert job.compiled["lenient", batch.shape] == job.compiled["more_lenient", batch.shape] > 0


@pytest.mark.slow
def test_few_widths_give_the_tokens_of_every_width_in_fewer_programs(pair, models):
    few, each = (make_job(pair, models, {}, bucket=bucket) for bucket in (0, 1))
    shapes = [{batch.shape for batch in job.batches()} for job in (few, each)]
    assert len(shapes[0]) < len(shapes[1])
    with list_decodes() as names:
        measured = decode.measure(few, few.batches())
        assert len(names) == len(shapes[0])
    other = decode.measure(each, each.batches())
    for name, entry in measured.items():
        assert entry.tokens == other[name].tokens
        assert entry.compile_seconds > 0


@pytest.mark.slow
def test_compiling_has_a_bar_of_its_own_before_that_of_the_decodes(pair, models, monkeypatch):
    bars = []

    def record(**settings):
        bars.append((settings["desc"], settings["total"], settings.get("initial", 0)))
        assert settings["smoothing"] == 0  # the time left follows from all that was done
        return progress(**settings)

    for module in (compiling, decode):
        monkeypatch.setattr(module, "progress", record)
    job = make_job(pair, models, {"short": neural_spec("drafter", 2)}, examples=6)
    batches = job.batches()
    shapes = len({batch.shape for batch in batches})
    decode.measure(job, batches)
    assert bars == [("compile", 2 * shapes, 0), ("decode", len(batches), 0)]
    del bars[:]
    monkeypatch.setattr(compiling, "MOST_AHEAD", 2)  # the programs of one shape
    job.compiled.clear()
    decode.measure(job, batches)
    assert len(bars) == 2 * shapes > 2
    done = [initial for desc, total, initial in bars if desc == "decode" and total == len(batches)]
    assert len(done) == shapes and done == sorted(set(done))


def test_all_programs_are_compiled_before_the_first_decode_if_they_are_not_too_many(monkeypatch):
    row = np.ones(1, np.int32)
    batches = [Batch(np.ones((1, width), np.int32), *[row] * 3, 1) for width in (4, 5, 4, 6)]
    assert shape_groups(batches, 8) == [[[0, 2], [1], [3]]]
    monkeypatch.setattr(compiling, "MOST_AHEAD", 16)
    assert shape_groups(batches, 8) == [[[0, 2], [1]], [[3]]]
    assert shape_groups(batches, 100) == [[[0, 2]], [[1]], [[3]]]
