"""Rows of token ids in one flat array: millions of them fit where Python lists would not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class Ragged(Sequence):
    """Rows of int32 ids, each of its own length."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        parts, lengths = [np.zeros(0, np.int32)], []
        for row in rows:
            parts.append(np.asarray(row, np.int32))
            lengths.append(len(row))
        self._flat = np.concatenate(parts)
        self._start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._start) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._flat[self._start[index] : self._start[index + 1]]


class Pairs(Sequence):
    """Prompts and outputs side by side."""

    def __init__(self, prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> None:
        if len(prompts) != len(outputs):
            raise ValueError(f"there are {len(prompts)} prompts and {len(outputs)} outputs")
        self.prompts, self.outputs = prompts, outputs

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> tuple[Sequence[int], Sequence[int]]:
        return self.prompts[index], self.outputs[index]
