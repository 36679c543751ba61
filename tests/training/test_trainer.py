"""The pipeline and the loop: order, learning, divergence, checkpoints, resumption, kills."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from slow_cases import some_slow
from toy import MODEL, PAIRS, batches, loss, run

from specjax.data.pipeline import pad_batch
from specjax.runtime.errors import TerminationRequest, UserError
from specjax.training.checkpoint import Checkpoints
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import DECAYS, NAMES, Optimizer
from specjax.training.step import Setup
from specjax.training.surgery import deepen, take
from specjax.training.trainer import Run, Watch, fit


def test_decoder_inputs_are_the_labels_one_step_later():
    batch = pad_batch([([5, 1], [7, 8, 1])], 4, 0, 0)
    assert batch["inputs"].tolist() == [[0, 7, 8, 1]]
    assert batch["labels"].tolist() == [[7, 8, 1, 0]]
    assert batch["mask"].tolist() == [[True, True, True, False]]


def test_a_decoder_only_row_is_prompt_and_output_and_learns_the_output():
    batch = pad_batch([([5, 6], [7, 8, 1]), ([4], [3, 1])], 4, None, 0)
    assert batch["inputs"].tolist() == [[5, 6, 7, 8], [4, 3, 1, 0]]
    assert batch["labels"].tolist() == [[6, 7, 8, 1], [3, 1, 0, 0]]
    assert batch["mask"].tolist() == [[False, True, True, True], [True, True, False, False]]
    assert batch["length"].tolist() == [4, 2] and batch["prompt_length"].tolist() == [2, 1]


def test_the_pipeline_is_a_function_of_its_seed_and_the_step():
    def first(seed: int, step: int = 0) -> list:
        return [b["prompt"].tolist() for b in itertools.islice(batches(seed).since(step), 12)]

    assert first(1) == first(1)
    assert first(1) != first(2)
    assert first(1, 5)[:7] == first(1)[5:]
    assert batches(1)[5]["prompt"].tolist() == first(1)[5]


def test_an_epoch_holds_every_batch_once():
    made = batches()
    epoch = list(itertools.islice(made.since(0), made.per_epoch))
    rows = [tuple(row) for batch in epoch for row in batch["prompt"].tolist()]
    assert len(rows) == len(set(rows)) == len(PAIRS) // 16 * 16


@pytest.mark.slow
def test_training_learns_a_small_task():
    before = loss(MODEL.init(jax.random.key(0)))
    assert loss(fit(run(150))) < 0.6 * before


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decay"), [*zip(NAMES, DECAYS, strict=True)])
def test_every_optimizer_and_schedule_lowers_the_loss(name, decay):
    """In pairs: an optimizer knows of its schedule only the rate of a step."""
    setup = Setup(MODEL, CrossEntropy(), Optimizer(20, 1e-2, name, warmup=2, decay=decay))
    init = functools.partial(MODEL.init, jax.random.key(0))
    assert loss(fit(Run("x", setup, init, batches().since))) < loss(init())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decay", DECAYS)
def test_a_rate_grows_from_zero_and_ends_where_its_schedule_says(name, decay):
    optimizer = Optimizer(20, 1e-2, name, warmup=2, decay=decay)
    rates = [float(optimizer.schedule()(step)) for step in range(21)]
    assert rates[0] == 0.0 and max(rates) == pytest.approx(1e-2)
    assert rates[20] == pytest.approx(1e-2 if decay == "constant" else 0.0, abs=1e-9)


@pytest.mark.parametrize("field", ["name", "decay"])
def test_an_unknown_optimizer_field_is_named(field):
    with pytest.raises(ValueError, match=f"{field} is 'x'; it must be one of"):
        Optimizer(1, 1e-3, **{field: "x"})


@pytest.mark.slow
def test_a_run_that_is_no_number_stops_with_a_clear_message():
    broken = jax.tree.map(lambda x: x * jnp.nan, MODEL.init(jax.random.key(0)))
    setup = run(2).setup
    with pytest.raises(UserError, match="diverged by step 2"):
        fit(Run("x", setup, lambda: broken, batches().since))


def test_a_loss_that_grows_out_of_hand_stops_the_run():
    watch = Watch("x")
    for value in (5.0, 2.0, 6.9):
        watch.look(1, value)
    with pytest.raises(UserError, match="diverged by step 9"):
        watch.look(9, 7.1)


@pytest.mark.slow
def test_a_diverging_run_keeps_its_last_good_checkpoint(tmp_path):
    """Learns for 16 steps; then the data turn into nonsense that no model can hold."""

    def poison_params(step: int):
        for number, batch in enumerate(batches().since(step), start=step + 1):
            yield batch if number <= 16 else {**batch, "labels": batch["labels"] + 10**6}

    good = dataclasses.replace(run(24, evaluate_every=8), batches=poison_params)
    with pytest.raises(UserError, match="diverged"):
        fit(good, tmp_path)
    with Checkpoints(tmp_path / "checkpoints", "loss", largest=False) as keeper:
        assert keeper.latest() == 16


def same(first, second) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_a_run_resumes_to_the_bit(tmp_path):
    """Steps, dropout and data position included."""
    whole = fit(run(24))
    stopped = run(24, evaluate_every=8)

    def until(step: int):
        return itertools.islice(batches().since(step), 13)

    fit(dataclasses.replace(stopped, batches=until), tmp_path)
    same(fit(stopped, tmp_path), whole)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_the_best_checkpoint_is_returned_and_kept(tmp_path):
    scores = iter([9.0, 3.0, 1.0, 2.0])  # the first before any step
    seen = {}

    def score_with(params) -> dict[str, float]:
        score = next(scores)
        seen[score] = jax.device_get(params)
        return {"loss": score}

    best = fit(run(24, evaluate=score_with, evaluate_every=8), tmp_path)
    same(best, seen[1.0])
    kept = sorted(int(p.name) for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit())
    assert kept == [16, 24]


def test_a_larger_metric_can_be_the_better_one(tmp_path):
    scores = iter([9.0, 3.0, 1.0, 2.0])
    seen = {}

    def score_with(params) -> dict[str, float]:
        score = next(scores)
        seen[score] = jax.device_get(params)
        return {"bleu": score}

    fields = {"evaluate_every": 8, "metric": "bleu", "largest": True}
    same(fit(run(24, evaluate=score_with, **fields), tmp_path), seen[3.0])


def without_room(monkeypatch, saves: int, *, in_a_thread: bool) -> None:
    """Orbax writes so many checkpoints; the disk is full at the next, at once or while it saves."""
    real, left = ocp.StandardCheckpointHandler.async_save, iter(range(saves))

    async def save(handler, *given, **named):
        if next(left, None) is not None:
            return await real(handler, *given, **named)
        if not in_a_thread:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return [Unwritten()]

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "async_save", save)


class Unwritten:
    """What Orbax waits for in a thread of its own."""

    def result(self, timeout: float | None = None) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("in_a_thread", some_slow([False, True], True))
def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    in_a_thread, tmp_path, monkeypatch, caplog, capfd
):
    stopped = run(24, evaluate_every=8)
    with monkeypatch.context() as patch:
        without_room(patch, 1, in_a_thread=in_a_thread)
        with pytest.raises(UserError, match="workdir '.*' has no room for a ch.*tep 8 is kept: "):
            fit(stopped, tmp_path)
    assert "Traceback" not in caplog.text + capfd.readouterr().err
    with Checkpoints(tmp_path / "checkpoints", "loss", largest=False) as keeper:
        assert keeper.latest() == 8
    same(fit(stopped, tmp_path), fit(run(24)))


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_first_checkpoint_keeps_none(tmp_path, monkeypatch):
    without_room(monkeypatch, 0, in_a_thread=True)
    with pytest.raises(UserError, match="none is kept yet: .* which starts from the beginning$"):
        fit(run(8, evaluate_every=8), tmp_path)


KILLS = int(os.environ.get("SPECJAX_KILLS", "3"))
SCRIPT = Path(__file__).with_name("killed.py")


def in_a_process(workdir: Path, delay: float, when: str) -> int:
    """Exit code of the run; it goes on from the checkpoints in the workdir."""
    workdir.mkdir(exist_ok=True)
    arguments = map(str, (workdir, 100 * KILLS, delay, when))
    line = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(line, stderr=subprocess.DEVNULL, timeout=300).returncode


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_bit_identical(tmp_path):
    """Most kills come between steps and saves, every fourth while the process starts."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = time.perf_counter()
    assert in_a_process(whole, 0.0, "never") == 0
    step_seconds = float((whole / "seconds").read_text("utf-8"))
    start_seconds = time.perf_counter() - start - step_seconds
    rng = random.Random(1)
    for kill in range(KILLS):
        when, most = ("start", start_seconds) if kill % 4 == 2 else (
            "steps", step_seconds / KILLS
        )  # fmt: skip
        assert in_a_process(killed, rng.uniform(0.0, most), when) == -signal.SIGKILL
    assert in_a_process(killed, 0.0, "never") == 0
    final = [np.load(folder / "final.npy") for folder in (whole, killed)]
    np.testing.assert_array_equal(*final)


def test_a_run_that_is_asked_to_end_keeps_its_step_and_goes_on(tmp_path):
    def ask(params, step, batch):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch

    before, fields = signal.getsignal(signal.SIGTERM), {"evaluate_every": 8}
    with pytest.raises(
        TerminationRequest, match="stops as requested; the same command resumes from step 4$"
    ):
        fit(run(24, prepare=ask, **fields), tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    with Checkpoints(tmp_path / "checkpoints", "loss", False) as keeper:
        assert keeper.latest() == 4
    same(fit(run(24, **fields), tmp_path), fit(run(24, **fields)))


def test_a_run_that_keeps_nothing_ends_too_when_it_is_asked():
    def ask(params, step, batch):
        os.kill(os.getpid(), signal.SIGTERM)
        return batch

    with pytest.raises(TerminationRequest, match="stops after step 1, as requested$"):
        fit(run(24, prepare=ask))


def test_a_deepened_model_computes_the_same_until_it_is_trained():
    params = MODEL.init(jax.random.key(0))
    deep, grown = deepen(MODEL, params, 3)
    batch = pad_batch(PAIRS[:4], 4, 0, 0)
    np.testing.assert_allclose(
        MODEL.teach(params, batch)[0], deep.teach(grown, batch)[0], atol=1e-5
    )
    assert jax.tree.structure(grown) == jax.tree.structure(deep.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="already has"):
        deepen(deep, grown, 1)


def test_layers_that_are_not_there_cannot_be_taken():
    with pytest.raises(UserError, match="decoder_layers names layer 4; there are 0 to 0"):
        take(MODEL, MODEL.init(jax.random.key(0)), decoder=(4,))
