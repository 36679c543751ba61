"""Training and decoding over several processes: the same as by one, and what a kill leaves."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import ROOT
from safetensors.numpy import load_file

WAIT = 600
"""Seconds after which a run hangs."""


def flags(config: str, workdir: Path, fields: dict[str, Any]) -> list[str]:
    """The flags of a job."""
    values = [f"--config.{field}={value}" for field, value in fields.items()]
    return [f"--config={ROOT / 'configs' / config}.py", f"--workdir={workdir}", *values]


def make_train_config(pair: Path, workdir: Path, steps: int, data: int, *more: str) -> list[str]:
    """A few steps of the tiny drafter, rows split over `data` devices; only losses are scored."""
    sides = [
        f"--config.{side}.{field}={value}"
        for side in ("train", "validation")
        for field, value in {
            "data.kind": "text",
            "data.path": pair / "source.txt",
            "data.reference_path": pair / "reference.txt",
            "data.split": "",
        }.items()
    ]
    fields = {
        "model.checkpoint": pair / "drafter", "train.examples": 48, "validation.examples": 8,
        "optimizer.steps": steps, "optimizer.warmup": 1, "evaluation.every": 2,
        "evaluation.batch_size": 8, "evaluation.decode": False, "evaluation.keep": "loss",
        "batch_size": 8, "bucket": 128, "max_prompt_tokens": 128, "max_output_tokens": 128,
        "mesh.data": data,
    }  # fmt: skip
    return [*flags("training/finetune", workdir, fields), *sides, *more]


def start(processes: int, devices: int, job: list[str], *options: str) -> subprocess.Popen[str]:
    """Starts a job as several processes of so many CPU devices each."""
    shape = (f"--processes={processes}", f"--devices={devices}")
    return subprocess.Popen(
        [ROOT / "launch" / "local.sh", *shape, *options, "--", *job],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=os.environ | {"VIRTUAL_ENV": sys.prefix},
    )


def finish(run: subprocess.Popen[str]) -> str:
    """What a run printed that ended well."""
    said, _ = run.communicate(timeout=WAIT)
    assert run.returncode == 0, said[-3000:]
    return said


def evaluations(workdir: Path) -> list[dict[str, float]]:
    lines = (workdir / "evaluations.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def parameters(workdir: Path) -> dict[str, np.ndarray]:
    return load_file(workdir / "model" / "model.safetensors")


def same_training(first: Path, second: Path, atol: float) -> None:
    """The same loss curve and, at its best, the same parameters."""
    curves = [[(e["step"], e["loss"]) for e in evaluations(each)] for each in (first, second)]
    assert len(curves[0]) > 1
    np.testing.assert_allclose(*curves, atol=atol)
    found = parameters(second)
    for name, value in parameters(first).items():
        np.testing.assert_allclose(found[name], value, atol=atol, err_msg=name)


Shapes = tuple[tuple[int, int], ...]
"""Processes and devices of each; every process compiles every program, so two shapes for a job."""
TRAINING: Shapes = ((1, 8), (2, 4))
DECODING: Shapes = ((1, 8), (4, 2))


@pytest.mark.slow
def test_the_number_of_processes_changes_no_bit_of_a_training_run(
    pair: Path, tmp_path: Path
) -> None:
    """Rows of the data, of the target and of the drafter itself, on weights that are split too."""
    more = (
        f"--config.target={pair / 'target'}", "--config.target_outputs.batch_size=8",
        "--config.objective.name=distillation", "--config.sequences.data=0.4",
        "--config.sequences.target=0.3", "--config.sequences.drafter=0.3",
        "--config.evaluation.decode=True", "--config.max_output_tokens=16",
        "--config.objective.smoothing=0.0", "--config.mesh.model=2",
    )  # fmt: skip
    workdirs = []
    for processes, devices in TRAINING:
        workdirs.append(tmp_path / f"{processes}x{devices}")
        finish(start(processes, devices, make_train_config(pair, workdirs[-1], 6, 4, *more)))
    baseline, together = workdirs
    assert evaluations(together) == evaluations(baseline)
    same_training(baseline, together, 0.0)
    texts = [(workdir / "target_outputs.jsonl").read_text("utf-8") for workdir in workdirs]
    assert texts[0] == texts[1]
    written = {file.relative_to(together) for file in together.rglob("events.*")}
    assert len(written) == 1, "one process writes"


def make_decode_config(pair: Path, workdir: Path) -> list[str]:
    fields = {
        "target": pair / "target", "drafter": pair / "drafter", "examples": 6,
        "source_file": pair / "source.txt", "reference_file": pair / "reference.txt",
        "batch_size": 4, "repeats": 1, "max_new_tokens": 10, "bucket": 128, "mesh.data": 4,
        "mesh.model": 2, "only": "speculative_sampling",
    }  # fmt: skip
    return flags("translate", workdir, fields)


def read_outputs(workdir: Path) -> list[dict[str, Any]]:
    """The outputs of a decode without their times."""
    lines = (workdir / "outputs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [{name: row[name] for name in row if not name.endswith("seconds")} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["static", "filled"])
def test_the_number_of_processes_changes_no_token_of_a_decode(
    pair: Path, tmp_path: Path, batching: str
) -> None:
    """Processes share the rows of static batches; of slots each has its own."""
    found = []
    for processes, devices in DECODING:
        workdir = tmp_path / f"{processes}x{devices}"
        job = [*make_decode_config(pair, workdir), f"--config.batching={batching}"]
        finish(start(processes, devices, job))
        found.append(read_outputs(workdir))
        assert (workdir / "report.html").exists()
        results = json.loads((workdir / "results.json").read_text("utf-8"))
        assert results["environment"]["processes"] == processes
    names = {row["strategy"] for row in found[0]}
    assert {"autoregressive", "speculative_sampling"} <= names  # greedy, and drawn
    assert found[0] == found[1]


def descendants(process: int) -> Iterator[int]:
    """The processes below one, the nearest first."""
    threads = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(word) for file in threads for word in file.read_text().split()]
    yield from children
    yield from itertools.chain.from_iterable(map(descendants, children))


def python_of(run: subprocess.Popen[str], index: int) -> int:
    """The Python process of a number in a run."""
    place = f"JAX_PROCESS_ID={index}"
    for process in descendants(run.pid):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if b"specjax.main" in words and b"python" in words[0]:
            settings = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            if place.encode() in settings:
                return process
    raise AssertionError(f"no process has {place}")


def wait_for(found: Any, run: subprocess.Popen[str]) -> None:
    """Returns as soon as `found()` is true."""
    until = time.monotonic() + WAIT
    while not found():
        assert run.poll() is None, run.communicate()[0][-3000:]
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_filled_decode_goes_on_after_one_of_its_processes_was_killed(
    pair: Path, tmp_path: Path
) -> None:
    """No row is lost or twice, and none that was logged is decoded again."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    more = ("--config.batching=filled", "--config.examples=0", "--config.mesh.model=1")
    finish(start(1, 1, [*make_decode_config(pair, whole), *more, "--config.mesh.data=1"]))
    job = [*make_decode_config(pair, killed), *more, "--config.mesh.data=2", "--config.repeats=3"]
    run = start(2, 1, job, "--retries=1")
    log = killed / "filled.1.jsonl"
    wait_for(lambda: log.exists() and len(log.read_text("utf-8").splitlines()) > 3, run)
    os.kill(python_of(run, 1), signal.SIGKILL)
    said = finish(run)
    assert "specjax: this process died with exit code 137, which ends the job" in said
    assert read_outputs(killed) == read_outputs(whole)
    results = json.loads((killed / "results.json").read_text("utf-8"))
    passes = [one for entry in results["strategies"].values() for one in entry["passes"]]
    assert sum(one["resumed_rows"] for one in passes) > 0
    count = len(read_outputs(whole)) // len(results["strategies"])
    parts = [part for one in passes for part in one["processes"]]
    assert sum(part["rows"] + part["resumed_rows"] for part in parts) == count * len(passes)
    assert not list(killed.glob("filled*"))


STEPS = 12
"""Of a run that is ended after its first checkpoint, at step 4 or a little later."""
EVERY_4 = "--config.evaluation.every=4"


@pytest.fixture(scope="module")
def whole(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workdir of a run of two processes that nobody ended."""
    workdir = tmp_path_factory.mktemp("whole")
    finish(start(2, 1, make_train_config(pair, workdir, STEPS, 2, EVERY_4)))
    return workdir


def end_after_a_checkpoint(pair: Path, workdir: Path, index: int, how: signal.Signals) -> str:
    """What a job of two processes printed of which one was ended; --retries starts it again."""
    run = start(2, 1, make_train_config(pair, workdir, STEPS, 2, EVERY_4), "--retries=1")
    wait_for(lambda: (workdir / "checkpoints" / "4").exists(), run)
    os.kill(python_of(run, index), how)
    return finish(run)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_run_which_goes_on_from_its_checkpoint(
    pair: Path, whole: Path, tmp_path: Path, killed: int
) -> None:
    """It then ends where one that nobody killed does."""
    said = end_after_a_checkpoint(pair, tmp_path, killed, signal.SIGKILL)
    assert "specjax: this process died with exit code 137, which ends the job" in said
    assert "started again from its last checkpoint (1 of 1)" in said
    same_training(whole, tmp_path, 0.0)
    assert evaluations(whole) == evaluations(tmp_path)


@pytest.mark.slow
def test_processes_of_which_one_is_asked_to_end_all_keep_the_same_step(
    pair: Path, whole: Path, tmp_path: Path
) -> None:
    """As before a preemption."""
    said = end_after_a_checkpoint(pair, tmp_path, 1, signal.SIGTERM)
    assert "stops as requested; the same command resumes from step" in said
    assert "ended with exit code 143; it is started again from its last checkpoint (1 of 1)" in said
    same_training(whole, tmp_path, 0.0)
