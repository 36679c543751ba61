"""What a process says when it cannot be one of several."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from command import ROOT, command, run_refused

import specjax
from specjax.runtime import processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "--distributed finds no other processes"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "two"}, "'two'"),
    ],
)
def test_a_process_that_finds_no_others_says_so(settings: dict[str, str], said: str) -> None:
    """In a process of its own: JAX must not have been asked for a device before."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, "-m", "specjax.main", "--distributed", "--config=configs/translate.py"],
        env=known | {"JAX_PLATFORMS": "cpu"} | settings,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    run_refused(done.returncode, done.stderr, said)


def test_what_several_processes_cannot_do_is_said_in_a_sentence(monkeypatch) -> None:
    monkeypatch.setattr(processes, "join", lambda: None)
    monkeypatch.setattr(processes, "has_several", lambda: True)
    done = command("--config=configs/tune.py", "--distributed")
    run_refused(done.returncode, done.stderr, "'tune'; with several processes it must be decode or")


def test_a_mesh_of_some_devices_is_refused_to_several_processes(monkeypatch) -> None:
    monkeypatch.setattr(processes, "has_several", lambda: True)
    monkeypatch.setattr("jax.devices", lambda: [None] * 4)
    with pytest.raises(specjax.UserError, match="is 2 of 4 devices; with several processes"):
        specjax.make_mesh({"data": 2})


def test_a_failure_of_a_single_process_is_raised_and_its_exit_code_kept() -> None:
    assert processes.exit_together(lambda argv: len(argv), ["a", "b"]) == 2
    with pytest.raises(ZeroDivisionError):
        processes.exit_together(lambda argv: 1 // 0, [])
