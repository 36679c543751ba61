"""What a training run says while it runs: a progress bar, event files, evaluations.

Event files are TensorBoard's; `more` may open another log, as that of `wandb_log`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from specjax.progress import progress
from specjax.training.events import EventFile
from specjax.writing import write_jsonl

EVALUATIONS = "evaluations.jsonl"
"""In the workdir: one line {"step", metrics ...} for each evaluation."""


def evaluations(workdir: Path) -> list[dict[str, float]]:
    """What the evaluations of a run found so far."""
    file = workdir / EVALUATIONS
    return (
        [json.loads(line) for line in file.read_text("utf-8").splitlines() if line]
        if file.exists()
        else []
    )


class Log:
    """Progress of one run; a context manager."""

    def __init__(
        self,
        name: str,
        workdir: Path | None,
        first: int,
        last: int,
        more: Callable[[Path], Any] | None = None,
    ) -> None:
        self._bar = progress(total=last, initial=first, desc=f"train {name}", unit="step")
        self._events = self._more = None
        if workdir is not None:
            # Events beyond the step that a killed run resumes from are void.
            self._events = EventFile(workdir / "tensorboard", first + 1)
            self._evaluations = [e for e in evaluations(workdir) if e["step"] <= first and first]
            self._file = workdir / EVALUATIONS
            self._more = more(workdir) if more else None
        self._since, self._step = time.perf_counter(), first
        self._shown: dict[str, str] = {}

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
        if self._events:
            # What ended the run is what it says: a full disk fails here a second time.
            with contextlib.suppress(*[OSError] * (error is not None)):
                self._events.close()
        if self._more:
            self._more.finish(exit_code=0 if error is None else 1)

    def advance(self) -> None:
        """One more step."""
        self._bar.update()

    def training(self, step: int, reports: Sequence[Mapping[str, float]], rate: float) -> None:
        """What the last steps reported."""
        now = time.perf_counter()
        seconds = max(now - self._since, 1e-9)
        values = {
            "loss": float(np.mean([report["loss"] for report in reports])),
            "gradient_norm": float(np.mean([report["gradient"] for report in reports])),
            "learning_rate": rate,
            "steps_per_second": (step - self._step) / seconds,
            "tokens_per_second": sum(int(report["positions"]) for report in reports) / seconds,
        }
        self._since, self._step = now, step
        self._write("train", step, values)
        self._show(loss=f"{values['loss']:.3f}", tok_s=f"{values['tokens_per_second']:.0f}")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """What an evaluation found; the time it took does not count as training."""
        self._write("evaluation", step, metrics)
        if self._events:
            self._evaluations.append({"step": step, **metrics})
            write_jsonl(self._file, self._evaluations)
        self._show(**{f"eval_{name}": f"{value:.3f}" for name, value in metrics.items()})
        self._since = time.perf_counter()

    def _write(self, group: str, step: int, values: Mapping[str, float]) -> None:
        named = {f"{group}/{name}": value for name, value in values.items()}
        if self._events:
            self._events.write(named, step)
        if self._more:
            self._more.log(named, step=step)

    def _show(self, **values: str) -> None:
        self._shown |= values
        self._bar.set_postfix(self._shown)
