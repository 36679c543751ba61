"""How processes of one machine end: all well, or all because one did not.

The processes are shell scripts: what is tested are launch/local.sh and launch/process.sh. Those of
real jobs are in tests/parallel/test_processes.py.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from cluster import launch

LONG = 60
"""Seconds that a process would run if nobody ended it."""

PROCESS = f"""#!/bin/bash
echo "$JAX_PROCESS_ID $$ $*" >> HERE/started
end=$(head -n 1 HERE/ends-$JAX_PROCESS_ID 2>/dev/null)
sed -i 1d HERE/ends-$JAX_PROCESS_ID 2>/dev/null
case $end in
  forever) exec sleep {LONG} ;;
  [A-Z]*) kill -$end $$ ;;
  *) exit "${{end:-0}}" ;;
esac
"""


def run(folder: Path, ends: dict[int, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Two processes that end, start by start, as `ends` says: by exit codes, signals, or never."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(PROCESS.replace("HERE", str(folder)), "utf-8")
    python.chmod(0o755)
    for index, words in ends.items():
        (folder / f"ends-{index}").write_text(words.replace(" ", "\n") + "\n", "utf-8")
    arguments = ("--processes=2", *options, "--", "--config=a b")
    start = time.monotonic()
    done = launch("local", *arguments, VIRTUAL_ENV=str(folder))
    assert time.monotonic() - start < LONG / 2
    return done


def start_processes(folder: Path) -> list[list[str]]:
    lines = (folder / "started").read_text("utf-8").splitlines()
    return [line.split(maxsplit=2) for line in lines]


def test_processes_that_end_well_end_well(tmp_path: Path) -> None:
    done = run(tmp_path, {})
    assert (done.returncode, done.stderr) == (0, "")
    found = sorted((index, flags) for index, _, flags in start_processes(tmp_path))
    flags = "-m specjax.main --distributed --config=a b"
    assert found == [("0", flags), ("1", flags)]


@pytest.mark.parametrize("died", [0, 1])
def test_a_process_that_dies_ends_the_others_with_a_sentence(tmp_path: Path, died: int) -> None:
    done = run(tmp_path, {died: "KILL", 1 - died: "forever"})
    assert done.returncode == 3
    said = ("specjax: ", "launch/local.sh: ")  # bash adds that a process was killed
    first, second = [line for line in done.stderr.splitlines() if line.startswith(said)]
    assert first == (
        "specjax: this process died with exit code 137, which ends the job; started again, it goes"
        " on from its last checkpoint"
    )
    assert second.startswith("launch/local.sh: the job ended with exit code 3")
    for _, process, _ in start_processes(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_a_process_that_lost_the_others_says_so(tmp_path: Path) -> None:
    """JAX aborts it."""
    done = run(tmp_path, {0: "ABRT", 1: "forever"})
    assert done.returncode == 3
    assert "specjax: another process of this job died, which ends the job" in done.stderr


def test_a_job_is_started_again_as_often_as_was_asked(tmp_path: Path) -> None:
    done = run(tmp_path, {0: "KILL forever 0", 1: "forever 1 0"}, "--retries=2")
    assert done.returncode == 0 and "(2 of 2)" in done.stderr
    assert [index for index, *_ in start_processes(tmp_path)].count("1") == 3


def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, {0: "2", 1: "forever"}, "--retries=5")
    assert (done.returncode, done.stderr) == (2, "")
    assert len(start_processes(tmp_path)) == 2
