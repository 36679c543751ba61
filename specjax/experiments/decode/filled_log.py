"""Log of the rows of a filled run in its workdir, until its results are written.

JSON lines: the first one describes the run. Others hold rows that ended one after another, with the
sums of their figures (`metrics.sums`), or the figures of a strategy's whole pass over all prompts.
Passes follow one another, so only the last one may be unfinished. Nothing is read as a whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from specjax.experiments.workdir import resume_stream
from specjax.metrics.sums import Sums, add_sums
from specjax.runtime.json_files import stream_rows, write_row

LOG = "filled.jsonl"
"""File in the workdir; of several processes each has one of its own (`list_logs`)."""

_CACHED = 128
"""Lines of which the rows are held while outputs are read in the order of examples."""

Pass = tuple[str, int]
"""A strategy and the number of its pass over all prompts, from 0."""

Row = dict[str, Any]
"""The `example` that a row is of, its output and figures."""


def list_logs(workdir: Path, count: int) -> list[Path]:
    """The files of `count` processes."""
    if count == 1:
        return [workdir / LOG]
    return [(workdir / LOG).with_suffix(f".{index}.jsonl") for index in range(count)]


@dataclasses.dataclass
class RowLog:
    """Rows and passes that are logged already, and the file to append to."""

    file: Path
    out: TextIO
    figures: dict[Pass, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Those of finished passes."""
    last: Pass | None = None
    done: set[int] = dataclasses.field(default_factory=set)
    """Examples with a row in the `last` pass, if that is unfinished."""

    def read(self) -> None:
        """Finds out what the file holds."""
        for line in self._lines():
            key = line["strategy"], line["pass"]
            if "figures" in line:
                self.figures[key] = line["figures"]
                self.last, self.done = None, set()
            else:
                self.last = key
                self.done.update(row["example"] for row in line["rows"])

    def get_done(self, key: Pass) -> set[int]:
        """The examples with a row in a pass that was interrupted."""
        return self.done if self.last == key else set()

    def add(self, key: Pass, rows: Sequence[Row], sums: Sums) -> None:
        """Appends rows and their sums as one line."""
        self._write(key, {"rows": rows, "sums": sums})

    def finish(self, key: Pass, figures: dict[str, Any]) -> None:
        """Appends the figures of a pass of which all rows are logged."""
        self.figures[key] = figures
        self._write(key, {"figures": figures})

    def _write(self, key: Pass, content: Mapping[str, Any]) -> None:
        row = {"strategy": key[0], "pass": key[1], **content}
        write_row(self.out, row, ensure_ascii=False)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """All lines but the one that describes the run."""
        for _, line in itertools.islice(stream_rows(self.file), 1, None):
            yield line

    def sum_up(self, names: Sequence[str]) -> dict[str, Sums]:
        """The sums of the first pass of each strategy."""
        sums: dict[str, Any] = dict.fromkeys(names)
        for line in self._lines():
            if line["pass"] == 0 and "sums" in line:
                sums[line["strategy"]] = add_sums(sums[line["strategy"]], line["sums"])
        return sums


@contextlib.contextmanager
def open_log(file: Path, description: Mapping[str, Any]) -> Iterator[RowLog]:
    """The log of a run; `resume_stream` manages its file.

    Raises:
      UserError: when the file is damaged.
    """
    with resume_stream(file, description) as out:
        log = RowLog(file, out)
        log.read()
        yield log


class LoggedRows:
    """The rows of the first passes by strategy and example.

    Held are 8 bytes a row, where its line is, and the latest lines: rows that follow one another
    ended at nearly the same time.
    """

    def __init__(self, file: Path, opened: BinaryIO, names: Sequence[str], count: int) -> None:
        self._places = {name: np.zeros(count, np.int64) for name in names}
        for place, line in itertools.islice(stream_rows(file), 1, None):
            if line["pass"] == 0 and "rows" in line:
                self._places[line["strategy"]][[row["example"] for row in line["rows"]]] = place
        self._opened = opened
        self._line = functools.lru_cache(maxsize=_CACHED)(self._read_line)

    def get(self, name: str, example: int) -> Row:
        """The row of a strategy for an example."""
        return self._line(int(self._places[name][example]))[example]

    def _read_line(self, place: int) -> dict[int, Row]:
        self._opened.seek(place)
        rows = json.loads(self._opened.readline())["rows"]
        return {row["example"]: row for row in rows}
