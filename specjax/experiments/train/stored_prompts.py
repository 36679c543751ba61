"""Prompts of files in a workdir, each computed once: encoder states, or what an encoder reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from specjax.data.pipeline import Rows
from specjax.runtime.errors import UserError
from specjax.runtime.files import whole_lines, write_row
from specjax.runtime.progress import progress

ARRAYS = "prompts.bin"
"""File in the workdir: arrays [N, S, D] in half precision, in the order of the index."""

INDEX = "prompts.jsonl"
"""File next to it: file and checkpoint of each entry."""

DTYPE = np.float16


class StoredPrompts:
    """Arrays [S, D] by file; missing ones are computed and appended.

    Raises:
      UserError: when the workdir has those of another encoder.
    """

    def __init__(self, workdir: Path, checkpoint: str, shape: tuple[int, int]) -> None:
        self._file, self._index = workdir / ARRAYS, workdir / INDEX
        self._checkpoint, self._shape = checkpoint, shape
        self._row = math.prod(shape) * np.dtype(DTYPE).itemsize
        self._places: dict[str, int] = {}
        for line in whole_lines(self._index):
            if line["checkpoint"] != checkpoint:
                raise UserError(
                    f"{str(self._index)!r} has prompts of {line['checkpoint']!r}; remove it,"
                    " or use another workdir"
                )
            self._places[line["file"]] = len(self._places)

    def __call__(
        self, files: Sequence[str], compute: Callable[[str], np.ndarray]
    ) -> Sequence[np.ndarray]:
        """The arrays of files; `compute` returns that of a missing one, [S, D]."""
        missing = list(dict.fromkeys(file for file in files if file not in self._places))
        if missing:
            self._append(missing, compute)
        return _Rows(self._file, self._shape, [self._places[file] for file in files])

    def _append(self, files: Sequence[str], compute: Callable[[str], np.ndarray]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._file.open("ab") as arrays,
            self._index.open("a", encoding="utf-8") as index,
            progress(total=len(files), desc="encode files", unit="file") as bar,
        ):
            arrays.truncate(len(self._places) * self._row)  # without the rest of an interrupted run
            for file in files:
                arrays.write(compute(file).astype(DTYPE).tobytes())
                arrays.flush()
                write_row(index, {"file": file, "checkpoint": self._checkpoint})
                self._places[file] = len(self._places)
                bar.update(1)


class _Rows(Rows[np.ndarray]):
    """Rows of a file of arrays, read lazily."""

    def __init__(self, file: Path, shape: tuple[int, int], places: Sequence[int]) -> None:
        count = file.stat().st_size // (math.prod(shape) * np.dtype(DTYPE).itemsize)
        self._arrays = np.memmap(file, DTYPE, "r", shape=(count, *shape))
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def row(self, index: int) -> np.ndarray:
        return self._arrays[self._places[index]]
