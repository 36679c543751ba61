"""Decode records of a stream's texts, as stored in its workdir."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from specjax.decoding.state import Generation


@dataclasses.dataclass(frozen=True)
class DecodeRecord:
    """Tokens of one text by one strategy; drafted, tested and accepted counts by round."""

    tokens: list[int]
    committed: list[int]
    drafted: list[int]
    accepted: list[int]
    tested: list[int]

    @property
    def places(self) -> np.ndarray:
        """Mask [G] of tokens at positions where the target tested a drafted token.

        A round tests up to the first rejected token, which the target's own token replaces. A bonus
        token after an accepted draft, or a round without a draft, tests nothing.
        """
        begins = np.cumsum(self.committed) - self.committed
        places = np.zeros(len(self.tokens), bool)
        for begin, count in zip(begins, self.tested, strict=True):
            places[begin : begin + count] = True
        return places


def read_records(generation: Generation, rows: int) -> list[DecodeRecord]:
    """The first `rows` rows of a decode."""
    # Leaves out the drafter's memory, which may be large.
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
    """A batch that all strategies have decoded, and the update after it."""

    texts: list[str]
    seconds: dict[str, float]  # of decoding, by strategy
    records: dict[str, list[DecodeRecord]]  # by strategy
    learning: dict[str, float] | None  # seconds and loss of the update; None: there was none

    def row(self) -> dict[str, Any]:
        """The turn as a JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Turn:
        """Parses the turn from its JSON object."""
        made = {
            name: [DecodeRecord(**one) for one in each] for name, each in row["records"].items()
        }
        return cls(row["texts"], row["seconds"], made, row["learning"])
