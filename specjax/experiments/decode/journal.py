"""Journal of decoded batches in the workdir until the results are written.

JSON lines: the first one describes the run. Every other line holds a batch that all strategies have
decoded in one repeat, or compile times. Strategies alternate within a batch and incomplete batches
are decoded again, so times of a resumed run remain comparable.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from specjax.decoding.state import Generation
from specjax.decoding.trace import Trace
from specjax.experiments.decode.records import BatchOutput
from specjax.experiments.decode.session import Session
from specjax.experiments.workdir import describe_run, resume_rows
from specjax.runtime.json_files import write_row

JOURNAL = "decoded.jsonl"
"""File in the workdir."""

_TRACE = tuple(f.name for f in dataclasses.fields(Trace) if f.name not in ("columns", "logprobs"))
"""The arrays of a trace; these decodes compute no log-probabilities."""


@dataclasses.dataclass
class Journal:
    """Batches that are decoded already; without a file they are not saved."""

    file: TextIO | None = None
    decoded: dict[tuple[int, int], dict[str, BatchOutput]] = dataclasses.field(default_factory=dict)
    """Outputs by repeat and index of the batch."""
    compiled: dict[tuple[int, ...], dict[str, float]] = dataclasses.field(default_factory=dict)
    """Compile seconds by strategy, by the shape of a batch."""

    def add(self, repeat: int, batch: int, decoded: Mapping[str, BatchOutput]) -> None:
        """Saves the outputs of all strategies for a batch."""
        entries = {name: _entry(output) for name, output in decoded.items()}
        self._write({"repeat": repeat, "batch": batch, "strategies": entries})

    def add_compiled(self, shape: tuple[int, ...], seconds: Mapping[str, float]) -> None:
        """Saves the compile seconds for the shape of a batch."""
        self.compiled[shape] = dict(seconds)
        self._write({"shape": shape, "seconds": dict(seconds)})

    def _write(self, row: dict[str, Any]) -> None:
        write_row(self.file, row)


@contextlib.contextmanager
def journal(file: Path, session: Session) -> Iterator[Journal]:
    """The journal of a run; its file is managed by `resume_rows`.

    Raises:
      UserError: when the file is damaged.
    """
    with resume_rows(file, describe_run(session.config, session.prompts)) as (rows, out):
        made = _read(rows)
        made.file = out
        yield made


def _read(rows: list[dict[str, Any]]) -> Journal:
    made = Journal()
    for row in rows:
        if "shape" in row:
            made.compiled[tuple(row["shape"])] = row["seconds"]
        else:
            entries = row["strategies"].items()
            made.decoded[row["repeat"], row["batch"]] = {
                n: _parse_entry(entry) for n, entry in entries
            }
    return made


def _entry(decoded: BatchOutput) -> dict[str, Any]:
    entry = {"seconds": decoded.seconds, "fixed": decoded.fixed, "lesson": _pack(decoded.lesson)}
    if decoded.generation is None:
        return entry
    generation, trace = decoded.generation, decoded.generation.trace
    arrays = {name: getattr(generation, name) for name in ("tokens", "begin", "length")}
    arrays |= {name: getattr(trace, name) for name in _TRACE}
    return {**entry, "columns": trace.columns, "generation": _pack(arrays)}


def _parse_entry(entry: dict[str, Any]) -> BatchOutput:
    generation = None
    if "generation" in entry:
        arrays = _unpack(entry["generation"])
        trace = {name: arrays.pop(name) for name in _TRACE}
        generation = Generation(**arrays, trace=Trace(**trace, columns=tuple(entry["columns"])))
    return BatchOutput(entry["seconds"], entry["fixed"], generation, _unpack(entry["lesson"]))


def _pack(arrays: Mapping[str, Any]) -> str:
    """Encodes arrays as text; empty for none."""
    if not arrays:
        return ""
    memory = io.BytesIO()
    np.savez_compressed(memory, **arrays)
    return base64.b64encode(memory.getvalue()).decode()


def _unpack(text: str) -> dict[str, Any]:
    """Decodes host arrays, in the form that `jax.device_get` returns."""
    if not text:
        return {}
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as arrays:
        return dict(arrays)
