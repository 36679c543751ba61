"""Rows of token ids in one flat array: millions of them fit where Python lists would not."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import TypeVar, overload

import numpy as np

Ids = Sequence[int] | np.ndarray
"""Token ids, or of a prompt encoder states [S, D]."""

TokenPair = tuple[Ids, Ids]
"""Ids of a prompt and of the output to learn, the output with its EOS."""

Row = TypeVar("Row", covariant=True)


class Rows(Sequence[Row]):
    """A sequence that makes a row when it is indexed."""

    @abc.abstractmethod
    def row(self, index: int) -> Row:
        """The row of an index."""

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self.row(place) for place in range(*index.indices(len(self)))]
        return self.row(index)


class Ragged(Rows[np.ndarray]):
    """Rows of int32 ids, each of its own length."""

    def __init__(self, rows: Iterable[Ids]) -> None:
        parts, lengths = [np.zeros(0, np.int32)], []
        for row in rows:
            parts.append(np.asarray(row, np.int32))
            lengths.append(len(row))
        self._flat = np.concatenate(parts)
        self._start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._start) - 1

    def row(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._flat[self._start[index] : self._start[index + 1]]


class Pairs(Rows[TokenPair]):
    """Prompts and outputs side by side."""

    def __init__(self, prompts: Sequence[Ids], outputs: Sequence[Ids]) -> None:
        if len(prompts) != len(outputs):
            raise ValueError(f"there are {len(prompts)} prompts and {len(outputs)} outputs")
        self.prompts, self.outputs = prompts, outputs

    def __len__(self) -> int:
        return len(self.prompts)

    def row(self, index: int) -> TokenPair:
        return self.prompts[index], self.outputs[index]
