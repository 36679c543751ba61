"""What became of every text of a stream, as its workdir keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from specjax.decoding.state import Generation


@dataclasses.dataclass(frozen=True)
class DecodeRecord:
    """One text by one strategy: its tokens, and by round what was drafted and what became of it."""

    tokens: list[int]
    committed: list[int]
    drafted: list[int]
    accepted: list[int]
    tested: list[int]

    @property
    def places(self) -> np.ndarray:
        """Whether [G] bool each token stands where the target tested a drafted one.

        A round tests up to the first rejected token, whose place has the target's own. The bonus
        token behind a draft that stood had no drafted one to test, nor had a round without draft.
        """
        begins = np.cumsum(self.committed) - self.committed
        places = np.zeros(len(self.tokens), bool)
        for begin, count in zip(begins, self.tested, strict=True):
            places[begin : begin + count] = True
        return places


def read_records(generation: Generation, rows: int) -> list[DecodeRecord]:
    """The first `rows` rows of a decode."""
    # Without the drafter's memory, which may be large.
    made = jax.device_get(generation.replace(memory=()))
    trace, found = made.trace, []
    columns = trace.committed, trace.drafted, trace.accepted, trace.tested
    for row in range(rows):
        ran = trace.committed[row] > 0
        tokens = made.tokens[row, made.begin[row] : made.length[row]].tolist()
        found.append(DecodeRecord(tokens, *(column[row][ran].tolist() for column in columns)))
    return found


@dataclasses.dataclass(frozen=True)
class Turn:
    """A batch that all strategies have decoded, and what was learned behind it."""

    texts: list[str]
    seconds: dict[str, float]  # of decoding, by strategy
    told: dict[str, list[DecodeRecord]]
    learning: dict[str, float] | None  # seconds and loss of the update; None: there was none

    def row(self) -> dict[str, Any]:
        """As a line of JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Turn:
        """The same from a line."""
        made = {name: [DecodeRecord(**one) for one in each] for name, each in row["told"].items()}
        return cls(row["texts"], row["seconds"], made, row["learning"])
