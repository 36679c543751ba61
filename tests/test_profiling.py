"""A profiler trace of the first rounds."""

from __future__ import annotations

import gzip
import json

import pytest
from tiny import corpus, write_pair

import specjax


@pytest.fixture(scope="module")
def generator(tmp_path_factory) -> specjax.Generator:
    """The target drafts for itself: four tokens a round, ten in three."""
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder)
    target = specjax.load(folder / "target")
    return specjax.Generator(
        target, {"drafter": target}, specjax.speculative(3), max_new_tokens=10, bucket=64
    )


@pytest.mark.parametrize(("rounds", "expected"), [(2, 2), (50, 3)])
def test_a_profile_holds_the_rounds_asked_for_or_all_there_are(
    generator, tmp_path, rounds, expected
):
    assert specjax.profile(generator, [corpus()[0].source], tmp_path, rounds=rounds) == expected
    (file,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "round" for event in events) == expected
