"""Encoder states of audio files in a workdir, each computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from specjax.data.pipeline import Rows
from specjax.runtime.errors import UserError
from specjax.runtime.files import whole_lines, write_row
from specjax.runtime.progress import progress

STATES = "encoder_states.bin"
"""File in the workdir: states [N, S, D] in half precision, in the order of the index."""

INDEX = "encoder_states.jsonl"
"""File next to it: audio file and checkpoint of each entry."""

DTYPE = np.float16


class EncoderStates:
    """States [S, D] by audio file; missing ones are computed and appended.

    Raises:
      UserError: when the workdir has those of another encoder.
    """

    def __init__(self, workdir: Path, checkpoint: str, shape: tuple[int, int]) -> None:
        self._file, self._index = workdir / STATES, workdir / INDEX
        self._checkpoint, self._shape = checkpoint, shape
        self._row = math.prod(shape) * np.dtype(DTYPE).itemsize
        self._places: dict[str, int] = {}
        for line in whole_lines(self._index):
            if line["checkpoint"] != checkpoint:
                raise UserError(
                    f"{str(self._index)!r} has encoder states of {line['checkpoint']!r}; remove it,"
                    " or use another workdir"
                )
            self._places[line["audio"]] = len(self._places)

    def __call__(
        self, files: Sequence[str], compute: Callable[[str], np.ndarray]
    ) -> Sequence[np.ndarray]:
        """The states of audio files; `compute` returns the states [S, D] of a missing one."""
        missing = list(dict.fromkeys(file for file in files if file not in self._places))
        if missing:
            self._append(missing, compute)
        return _Rows(self._file, self._shape, [self._places[file] for file in files])

    def _append(self, files: Sequence[str], compute: Callable[[str], np.ndarray]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._file.open("ab") as states,
            self._index.open("a", encoding="utf-8") as index,
            progress(total=len(files), desc="encode audio", unit="file") as bar,
        ):
            states.truncate(len(self._places) * self._row)  # without the rest of an interrupted run
            for file in files:
                states.write(compute(file).astype(DTYPE).tobytes())
                states.flush()
                write_row(index, {"audio": file, "checkpoint": self._checkpoint})
                self._places[file] = len(self._places)
                bar.update(1)


class _Rows(Rows[np.ndarray]):
    """Rows of a file of states, read lazily."""

    def __init__(self, file: Path, shape: tuple[int, int], places: Sequence[int]) -> None:
        count = file.stat().st_size // (math.prod(shape) * np.dtype(DTYPE).itemsize)
        self._states = np.memmap(file, DTYPE, "r", shape=(count, *shape))
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def row(self, index: int) -> np.ndarray:
        return self._states[self._places[index]]
