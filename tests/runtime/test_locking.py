"""One run at a time in a workdir."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, command, run_refused

from specjax.runtime.errors import UserError
from specjax.runtime.files import LOCK, alone_in

STAY = """
import signal, sys
from pathlib import Path
from specjax.runtime.files import alone_in
with alone_in("--workdir", Path(sys.argv[1])):
    print("entered", flush=True)
    signal.pause()
"""


def test_a_second_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with alone_in("--workdir", work):
        with pytest.raises(UserError) as refusal, alone_in("--workdir", work):
            pass
        done = command(f"--workdir={work}")
    who = f"process {os.getpid()} on {socket.gethostname()}"
    assert who in str(refusal.value)
    run_refused(done.returncode, done.stderr, "--workdir", str(work), who)


def test_the_next_run_may_enter_and_nothing_is_left(tmp_path: Path) -> None:
    work = tmp_path / "runs" / "work"
    for _ in range(2):
        with alone_in("--workdir", work):
            assert (work / LOCK).exists()
    assert not list(tmp_path.iterdir())


def test_what_a_run_writes_stays(tmp_path: Path) -> None:
    with alone_in("--workdir", tmp_path / "work"):
        (tmp_path / "work" / "results.json").write_text("{}")
    assert [file.name for file in (tmp_path / "work").iterdir()] == ["results.json"]


def test_without_locks_of_the_file_system_nobody_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    work = tmp_path / "work"
    with alone_in("--workdir", work), alone_in("--workdir", work):
        assert (work / LOCK).exists()
    assert not list(tmp_path.iterdir())


def test_a_lock_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises(OSError) as error, alone_in("--workdir", tmp_path):
        pass
    assert error.value.filename == str(tmp_path / LOCK)


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    line = [sys.executable, "-c", STAY, str(tmp_path)]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "entered\n"
        with (
            pytest.raises(UserError, match=f"process {run.pid} "),
            alone_in("--workdir", tmp_path),
        ):
            pass
        run.kill()
    assert (tmp_path / LOCK).exists()
    with alone_in("--workdir", tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
