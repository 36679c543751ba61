"""Decodes that were interrupted: what is kept, what is decoded again, and what makes all void."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict
from sessions import make_session

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import results
from specjax.experiments.decode.journal import JOURNAL
from specjax.experiments.pairs import load_pair
from specjax.pair import Pair
from specjax.runtime.errors import UserError
from specjax.runtime.files import naming_write_errors

REPEATS, EXAMPLES, STRATEGIES = 2, 2, 2
BATCH = 2 * STRATEGIES
"""Timed decodes of a batch in one repeat: each strategy also writes nothing once."""


@pytest.fixture(scope="module")
def models(pair) -> Pair:
    return load_pair(make_config(pair))


def make_config(pair: Path, **changes) -> ConfigDict:
    fields = {
        "target": str(pair / "target"),
        "drafter": str(pair / "drafter"),
        "source_file": str(pair / "source.txt"),
        "examples": EXAMPLES,
        "max_new_tokens": 6,
        "repeats": REPEATS,
        "bucket": 64,
        "strategies": {"autoregressive": AUTOREGRESSIVE, "short": neural_spec("drafter", 2)},
    }
    return decode_config(**fields | changes)


class Runs:
    """Runs one config after another, and counts the timed decodes of the last one."""

    def __init__(self, pair: Path, models: Pair, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.pair, self.models, self.folder, self.patch = pair, models, folder, patch
        self.timed, self.decodes, self.measured = decode.time_decode, 0, {}

    def run(self, *, die_after: int | None = None, **changes) -> None:
        """Runs to the end, or is interrupted in the decode after so many."""
        self.decodes = 0

        def time_run(*args, **more):
            if self.decodes == die_after:
                raise KeyboardInterrupt
            self.decodes += 1
            return self.timed(*args, **more)

        def write(job, measured, prices, folder):
            self.measured = measured
            return {}

        self.patch.setattr(decode, "time_decode", time_run)
        self.patch.setattr(results, "write", write)
        priced = SimpleNamespace(take=lambda batch: None, prices=lambda: None)
        self.patch.setattr(decode, "Pricing", lambda *_: priced)
        session = make_session(make_config(self.pair, **changes), self.folder, self.models)
        decode.finish(session, self.folder)

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL


@pytest.fixture
def runs(pair, models, tmp_path, monkeypatch) -> Iterator[Runs]:
    yield Runs(pair, models, tmp_path, monkeypatch)


WHOLE = STRATEGIES + REPEATS * EXAMPLES * BATCH
"""Timed decodes of a run, those that compile included."""


def test_a_run_that_was_not_interrupted_leaves_no_journal(runs) -> None:
    runs.run()
    assert runs.decodes == WHOLE
    assert not list(runs.folder.iterdir())


def test_an_interrupted_run_goes_on_after_the_last_batch_of_all_strategies(runs, capsys) -> None:
    runs.run()
    whole = runs.measured
    half = STRATEGIES + 3 * BATCH + 1
    with pytest.raises(KeyboardInterrupt):
        runs.run(die_after=half)
    kept = [json.loads(line) for line in runs.journal.read_text().splitlines()][2:]
    assert [(row["repeat"], row["batch"]) for row in kept] == [(0, 0), (0, 1), (1, 0)]
    runs.run()
    assert "3 of 4 batches were decoded before" in capsys.readouterr().out
    assert runs.decodes == STRATEGIES + BATCH
    for name, entry in runs.measured.items():
        assert entry.tokens == whole[name].tokens
        times = [row["strategies"][name]["seconds"] for row in kept]
        assert [entry.seconds[row["repeat"], row["batch"]] for row in kept] == times
        assert np.all(entry.seconds > 0) and np.all(entry.fixed > 0)
        for (one, rows), (other, same) in zip(entry.traces, whole[name].traces, strict=True):
            assert rows == same and one.trace.columns == other.trace.columns
            assert np.array_equal(one.trace.numbers, other.trace.numbers)
            assert np.array_equal(one.trace.drafts, other.trace.drafts)
    assert not runs.journal.exists()


def test_a_run_with_nothing_left_but_to_write_results_compiles_nothing(runs) -> None:
    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    with runs.patch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(decode, "write_profiles", interrupt)
        runs.run(profile_rounds=1)
    runs.patch.setattr(decode, "write_profiles", lambda *_: None)
    runs.run(profile_rounds=1)
    assert runs.decodes == 0
    assert all(entry.compile_seconds > 0 for entry in runs.measured.values())


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """A disk on which no file may be larger: the system refuses to write beyond."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(runs) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.run(die_after=WHOLE - 1)
    size = runs.journal.stat().st_size
    runs.journal.unlink()
    refusal = pytest.raises(UserError, match="--workdir '.*' has no room .* start the same run")
    with refusal, naming_write_errors("--workdir", runs.folder), room_for(size - 1):
        runs.run()
    assert 0 < runs.journal.stat().st_size < size
    runs.run()
    assert STRATEGIES < runs.decodes <= STRATEGIES + 2 * BATCH
    assert not runs.journal.exists()


@pytest.mark.parametrize("change", ("seed", "source", "machine"))
def test_another_run_begins_anew(change, runs, pair, tmp_path_factory) -> None:
    source = tmp_path_factory.mktemp("texts") / "source.txt"
    source.write_text((pair / "source.txt").read_text())
    with pytest.raises(KeyboardInterrupt):
        runs.run(die_after=WHOLE - 1, source_file=str(source))
    if change == "source":
        source.write_text((pair / "source.txt").read_text() + "\n")
    if change == "machine":
        runs.patch.setenv("XLA_FLAGS", "--of_another_machine")
    runs.run(source_file=str(source), seed=int(change == "seed"))
    assert runs.decodes == WHOLE


def test_a_line_that_was_cut_short_is_decoded_again(runs) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.run(die_after=WHOLE - 1)
    runs.journal.write_bytes(runs.journal.read_bytes()[:-20])
    runs.run()
    assert runs.decodes == STRATEGIES + 2 * BATCH
