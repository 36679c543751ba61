"""A profiler trace of the first rounds."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace

import pytest
from tiny import corpus

import specjax
from specjax.experiments.decode import job as decode


@pytest.fixture(scope="module")
def generator(pair) -> specjax.Generator:
    """The target drafts for itself: four tokens a round, ten in three."""
    target = specjax.load(pair / "target")
    return specjax.Generator(
        target, {"drafter": target}, specjax.speculative(3), max_new_tokens=10, bucket=64
    )


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "expected"), [(2, 2), (50, 3)])
def test_a_profile_holds_the_rounds_asked_for_or_all_there_are(
    generator, tmp_path, rounds, expected
):
    assert specjax.profile(generator, [corpus()[0].source], tmp_path, rounds=rounds) == expected
    (file,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "round" for event in events) == expected


@pytest.mark.slow
def test_the_main_job_profiles_every_strategy(generator, tmp_path):
    job = SimpleNamespace(
        config=SimpleNamespace(batch_size=1, profile_rounds=1, seed=0),
        prompts=generator.encode([corpus()[0].source]),
        generators={"once": generator, "again": generator},
    )
    decode.write_profiles(job, tmp_path)
    assert {file.parts[-5] for file in tmp_path.rglob("*.trace.json.gz")} == {"once", "again"}
