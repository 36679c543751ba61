"""Calibration of a trained drafter's confidence head on held-out texts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from specjax.data.pipeline import Arrays
from specjax.experiments.train.subject import Subject
from specjax.models.base import LanguageModel, Params
from specjax.models.dflash import DFlash
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.training.calibration import Confidences, fit_temperatures, measure_calibration
from specjax.training.objective import Frozen, Objective, TrainingBatch
from specjax.training.objectives.dflash import DFlashObjective
from specjax.training.step import Setup, whole_models
from specjax.training.trainer import split_batch

LEAST = 2
"""Fewest held-out texts: half of them are fitted, half measured."""


def check_calibration(objective: Objective, model: LanguageModel, texts: int) -> None:
    """Refuses to calibrate a drafter without a confidence head, or on too few held-out texts.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    if not is_calibrated(objective):
        return
    correction = model.config.correction if isinstance(model, DFlash) else None
    if not (correction and correction.confidence):
        raise UserError(
            "config.objective.calibrate is True; it must be False for a drafter without a"
            " confidence head (enable_confidence_head)"
        )
    if texts < LEAST:
        raise UserError(
            f"config.objective.calibrate is True with {texts} held-out rows; it must be False for"
            f" fewer than {LEAST}"
        )


def is_calibrated(objective: Objective) -> bool:
    """Returns whether an objective ends with calibration."""
    return isinstance(objective, DFlashObjective) and objective.calibrate


def calibrate(
    subject: Subject, setup: Setup, frozen: Frozen, batches: Iterable[Arrays], params: Params
) -> tuple[Subject, dict[str, Any]]:
    """Fits the temperatures of trained parameters; returns the subject with them, and figures.

    Every other held-out text is fitted; the errors before and after are those of the others. An
    objective that does not calibrate leaves the subject as it is, without figures.
    """
    model = subject.start.model
    if not (is_calibrated(setup.objective) and isinstance(model, DFlash)):
        return subject, {}
    recorded, text = record_confidences(setup, frozen, batches, params, subject)
    temperatures = fit_temperatures(recorded.select(text % 2 == 0))
    others = recorded.select(text % 2 == 1)
    figures = {
        "temperatures": temperatures,
        "error_before": measure_calibration(others),
        "error_after": measure_calibration(others, temperatures),
    }
    return _with_temperatures(subject, model, temperatures), figures


def show_calibration(figures: dict[str, Any]) -> None:
    """Prints the mean error before and after, if there was a calibration."""
    if figures:
        before, after = (np.mean(figures[name]) for name in ("error_before", "error_after"))
        print(f"  confidence: calibration error {before:.4f}, with temperatures {after:.4f}")


def record_confidences(
    setup: Setup, frozen: Frozen, batches: Iterable[Arrays], params: Params, subject: Subject
) -> tuple[Confidences, np.ndarray]:
    """The confidences of all blocks [N, K] of held-out texts, and the number [N] of each text."""
    made, text, count = [], [], 0
    for batch in batches:
        given = split_batch(batch, subject.start.mesh)
        parts = map(processes.whole, _record(setup, params, frozen, given))
        made.append([part.reshape(-1, part.shape[-1]) for part in parts])
        rows = len(batch["mask"])
        text.append(count + np.repeat(np.arange(rows), len(made[-1][0]) // rows))
        count += rows
    joined = (np.concatenate(parts) for parts in zip(*made, strict=True))
    return Confidences(*joined), np.concatenate(text)


@functools.partial(jax.jit, static_argnames="setup")
def _record(
    setup: Setup, params: Params, frozen: Frozen, batch: TrainingBatch
) -> tuple[jax.Array, jax.Array, jax.Array]:
    objective, model = setup.objective, setup.computed
    assert isinstance(objective, DFlashObjective) and isinstance(model, DFlash)
    return objective.confidences(model, *whole_models(setup, params, frozen), batch)


def _with_temperatures(subject: Subject, model: DFlash, temperatures: tuple[float, ...]) -> Subject:
    assert model.config.correction is not None
    correction = dataclasses.replace(model.config.correction, temperatures=temperatures)
    config = dataclasses.replace(model.config, correction=correction)
    start = dataclasses.replace(subject.start, model=dataclasses.replace(model, config=config))
    return dataclasses.replace(subject, start=start)  # type: ignore[type-var]
