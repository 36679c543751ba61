"""Every bad input of the command line ends in one sentence and exit code 2; nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import bad_inputs
import bad_names
import pytest
from bad_files import write_bad_files
from bad_inputs import BASES
from command import ROOT, command, run_refused

from specjax.main import CACHE

ROWS = (*bad_inputs.ROWS, *bad_names.ROWS)

MOST_SECONDS = 5
"""Of this process, which others do not slow down."""


@pytest.fixture(scope="module")
def places(pair, tmp_path_factory) -> dict[str, Path]:
    """The folders that rows of the table name."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("bad", "workdir")} | {"pair": pair}
    write_bad_files(found["bad"])
    # Not results.json: what holds results, of whatever run, is refused before the bad input is.
    (found["workdir"] / "outputs.jsonl").write_text("{}\n")
    return found


def make_flags(experiment: str, flags: tuple[str, ...], places: dict[str, Path]) -> list[str]:
    """The whole command line of a row."""
    line = ["--workdir={workdir}", *BASES[experiment], *flags]
    for name, folder in places.items():
        line = [flag.replace(f"{{{name}}}", str(folder)) for flag in line]
    return line


def tree(folder: Path) -> dict[str, bytes | None]:
    """Contents of everything in a folder, but of pipes and folders."""
    found = sorted(folder.rglob("*"))
    return {str(each): each.read_bytes() if each.is_file() else None for each in found}


def make_name(row: tuple[str, tuple[str, ...], tuple[str, ...]]) -> str:
    return f"{row[0]}-{row[1][-1].removeprefix('--config')[:60]!r}"


@pytest.mark.parametrize(("experiment", "flags", "words"), ROWS, ids=map(make_name, ROWS))
def test_a_bad_input_is_refused_in_one_sentence(experiment, flags, words, places, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(CACHE, "")  # a setting of the whole process
    before = tree(places["workdir"])
    start = time.process_time()
    done = command(*make_flags(experiment, flags, places))
    assert time.process_time() - start < MOST_SECONDS
    run_refused(done.returncode, done.stderr, *words)
    assert tree(places["workdir"]) == before


def test_the_table_is_as_long_as_it_says():
    assert len(set(ROWS)) == len(ROWS) >= 650
