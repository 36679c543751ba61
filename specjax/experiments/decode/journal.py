"""What a decode experiment has decoded, kept in its workdir until its results are written.

JSON lines: the first says of what run they are, every other one holds a batch that all strategies
have decoded in one repeat, or what compiling took. As strategies take turns within a batch, times
of a run that was killed and goes on are as comparable as if it had not been: what is not whole is
decoded anew.
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
from specjax.experiments.decode.records import Decoded
from specjax.experiments.decode.session import Session
from specjax.experiments.workdir import describe_run, resume_rows
from specjax.runtime.files import write_row

JOURNAL = "decoded.jsonl"
"""In the workdir."""

_TRACE = tuple(f.name for f in dataclasses.fields(Trace) if f.name != "columns")
"""The arrays of a trace."""


@dataclasses.dataclass
class Journal:
    """What is decoded already; without a file nothing that is added outlives the run."""

    file: TextIO | None = None
    decoded: dict[tuple[int, int], dict[str, Decoded]] = dataclasses.field(default_factory=dict)
    """By repeat and index of the batch."""
    compiled: dict[tuple[int, ...], dict[str, float]] = dataclasses.field(default_factory=dict)
    """Seconds by strategy, by the shape of a batch."""

    def add(self, repeat: int, batch: int, decoded: Mapping[str, Decoded]) -> None:
        """Keeps what all strategies gave for a batch."""
        entries = {name: _entry(output) for name, output in decoded.items()}
        self._write({"repeat": repeat, "batch": batch, "strategies": entries})

    def add_compiled(self, shape: tuple[int, ...], seconds: Mapping[str, float]) -> None:
        """Keeps what compiling for the shape of a batch took."""
        self.compiled[shape] = dict(seconds)
        self._write({"shape": shape, "seconds": dict(seconds)})

    def _write(self, row: dict[str, Any]) -> None:
        write_row(self.file, row)


@contextlib.contextmanager
def journal(file: Path, session: Session) -> Iterator[Journal]:
    """The journal of a run, as `resume_rows` keeps it.

    Raises:
      UserError: when it is damaged.
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
            made.decoded[row["repeat"], row["batch"]] = {n: _decoded(entry) for n, entry in entries}
    return made


def _entry(decoded: Decoded) -> dict[str, Any]:
    entry = {"seconds": decoded.seconds, "fixed": decoded.fixed, "lesson": _pack(decoded.lesson)}
    if decoded.generation is None:
        return entry
    generation, trace = decoded.generation, decoded.generation.trace
    arrays = {name: getattr(generation, name) for name in ("tokens", "begin", "length")}
    arrays |= {name: getattr(trace, name) for name in _TRACE}
    return {**entry, "columns": trace.columns, "generation": _pack(arrays)}


def _decoded(entry: dict[str, Any]) -> Decoded:
    generation = None
    if "generation" in entry:
        arrays = _unpack(entry["generation"])
        trace = {name: arrays.pop(name) for name in _TRACE}
        generation = Generation(**arrays, trace=Trace(**trace, columns=tuple(entry["columns"])))
    return Decoded(entry["seconds"], entry["fixed"], generation, _unpack(entry["lesson"]))


def _pack(arrays: Mapping[str, Any]) -> str:
    """Arrays as one text; empty for none."""
    if not arrays:
        return ""
    memory = io.BytesIO()
    np.savez_compressed(memory, **arrays)
    return base64.b64encode(memory.getvalue()).decode()


def _unpack(text: str) -> dict[str, Any]:
    """Arrays of the host, which may stand for those of a device, as `jax.device_get` gives them."""
    if not text:
        return {}
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as arrays:
        return dict(arrays)
