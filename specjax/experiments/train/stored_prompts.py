"""Prompts of files in a workdir, each computed once: encoder states, or what an encoder reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from specjax.data.pipeline import Rows
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import whole_lines, write_row
from specjax.runtime.progress import progress

ARRAYS = "prompts.bin"
"""File in the workdir: arrays [S, D] in half precision, in the order of the index."""

INDEX = "prompts.jsonl"
"""File next to it: file, checkpoint and S of each entry."""

DTYPE = np.float16


class StoredPrompts:
    """Arrays [S, D] by file; missing ones are computed and appended.

    Raises:
      UserError: when the workdir has those of another encoder.
    """

    def __init__(self, workdir: Path, checkpoint: str, width: int) -> None:
        self._file, self._index = workdir / ARRAYS, workdir / INDEX
        self._checkpoint, self._width, self._end = checkpoint, width, 0
        self._places: dict[str, tuple[int, int]] = {}  # the first number of a file's array, and S
        for line in whole_lines(self._index):
            if line["checkpoint"] != checkpoint or "size" not in line:
                raise UserError(
                    f"{str(self._index)!r} has prompts of {line['checkpoint']!r}; remove it,"
                    " or use another workdir"
                )
            self._place(line["file"], line["size"])

    def _place(self, file: str, size: int) -> None:
        self._places[file] = self._end, size
        self._end += size * self._width

    def __call__(
        self, files: Sequence[str], compute: Callable[[str], np.ndarray]
    ) -> Sequence[np.ndarray]:
        """The arrays of files; `compute` returns that of a missing one, [S, D]."""
        missing = list(dict.fromkeys(file for file in files if file not in self._places))
        if missing:
            self._append(missing, compute)
        return _Rows(self._file, self._width, [self._places[file] for file in files])

    def _append(self, files: Sequence[str], compute: Callable[[str], np.ndarray]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._file.open("ab") as arrays,
            self._index.open("a", encoding="utf-8") as index,
            progress(total=len(files), desc="encode files", unit="file") as bar,
        ):
            # Without the rest of an interrupted run.
            arrays.truncate(self._end * np.dtype(DTYPE).itemsize)
            for file in files:
                made = compute(file).astype(DTYPE)
                arrays.write(made.tobytes())
                arrays.flush()
                row = {"file": file, "checkpoint": self._checkpoint, "size": len(made)}
                write_row(index, row)
                self._place(file, len(made))
                bar.update(1)


class _Rows(Rows[np.ndarray]):
    """Rows of a file of arrays, read lazily."""

    def __init__(self, file: Path, width: int, places: Sequence[tuple[int, int]]) -> None:
        self._numbers = np.memmap(file, DTYPE, "r")
        self._width, self._places = width, places

    def __len__(self) -> int:
        return len(self._places)

    def row(self, index: int) -> np.ndarray:
        first, size = self._places[index]
        return self._numbers[first : first + size * self._width].reshape(size, self._width)
