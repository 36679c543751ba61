"""The log of a training run: a progress bar, event files, evaluations, Weights & Biases.

Event files are TensorBoard's; `more` may open another log, such as that of `open_wandb`.
tensorboardX's own `SummaryWriter` writes in another thread: with a full disk that prints a
traceback, and the run does not notice.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]  # made at import
from tensorboardX.summary import scalar

from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_jsonl
from specjax.runtime.progress import progress


class EventFile:
    """A new event file in a folder."""

    def __init__(self, folder: Path, first: int) -> None:
        """Opens the file; invalidates events of earlier files from step `first` on."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"))
        start = SessionLog(status=SessionLog.START)
        self._file.write_event(Event(wall_time=time.time(), step=first, session_log=start))

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Appends the values of a step."""
        for name, value in values.items():
            summary = scalar(name, value)
            self._file.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


EVALUATIONS = "evaluations.jsonl"
"""File in the workdir: one line {"step", metrics ...} for each evaluation."""


def evaluations(workdir: Path) -> list[dict[str, float]]:
    """The evaluations of a run so far."""
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
            # Invalidates events after the step that an interrupted run resumes from.
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
            # Reports the first error: a full disk fails here a second time.
            with contextlib.suppress(*[OSError] * (error is not None)):
                self._events.close()
        if self._more:
            self._more.finish(exit_code=0 if error is None else 1)

    def advance(self) -> None:
        """Counts one more step."""
        self._bar.update()

    def log_training(self, step: int, reports: Sequence[Mapping[str, float]], rate: float) -> None:
        """Logs the metrics of the last steps."""
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

    def log_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs an evaluation; its time does not count as training."""
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


ID = "wandb_id.txt"
"""File in the workdir: the id of the W&B run, so that a resumed run continues it."""

MODE = "WANDB_MODE"
"""wandb's own variable; without it runs are offline, so that nothing waits for a network."""


def check_installed(field: str, project: str) -> None:
    """Refuses a project when the package is missing.

    Raises:
      UserError: saying how to get it.
    """
    if project and importlib.util.find_spec("wandb") is None:
        raise UserError(
            f"{field} is {project!r}, but wandb is not installed; it must be empty, or the extra is"
            " needed: pip install 'specjax[wandb]'"
        )


def start(project: str, name: str, settings: Mapping[str, Any], workdir: Path) -> Any:
    """The new or resumed wandb run; its files are in `workdir`/wandb."""
    import wandb

    file = workdir / ID
    if not file.exists():
        file.write_text(secrets.token_hex(8), "utf-8")
    return wandb.init(
        project=project,
        name=name,
        config=dict(settings),
        dir=str(workdir),
        id=file.read_text("utf-8"),
        resume="allow",
        mode=os.environ.get(MODE, "offline"),
    )
