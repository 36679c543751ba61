"""Outputs, times and call prices of the strategies of a decode experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from specjax.api import Generator
from specjax.decoding.state import Generation
from specjax.decoding.strategy import Settings
from specjax.decoding.trace import Trace
from specjax.measuring.cost import Costs
from specjax.measuring.in_place import RoundPrice


@dataclasses.dataclass(frozen=True)
class BatchOutput:
    """Output and times of one strategy for one batch in one repeat."""

    seconds: float  # from host tokens to host tokens
    fixed: float  # the same program with no new tokens
    generation: Generation | None  # of the first repeat, on the host
    lesson: dict[str, np.ndarray]  # observations for its arm selector


@dataclasses.dataclass
class StrategyMeasurement:
    """Outputs and times of one strategy; all lists are per batch."""

    seconds: np.ndarray  # [repeats, batches], from host tokens to host tokens
    fixed: np.ndarray  # the same programs with no new tokens: prefill and dispatch
    rows: list[list[list[int]]]
    traces: list[Any]  # (generation with host arrays, rows)
    compile_seconds: float = 0.0

    @classmethod
    def empty(cls, repeats: int, batches: int) -> StrategyMeasurement:
        times = np.zeros((repeats, batches))
        return cls(times, times.copy(), [[]] * batches, [None] * batches)

    def add(self, repeat: int, index: int, rows: int, decoded: BatchOutput) -> None:
        """Adds the output of a batch with `rows` rows."""
        self.seconds[repeat, index] = decoded.seconds
        self.fixed[repeat, index] = decoded.fixed
        if decoded.generation is not None:
            self.rows[index] = Generator.rows(decoded.generation)[:rows]
            self.traces[index] = (decoded.generation, rows)

    @property
    def batch_seconds(self) -> np.ndarray:
        """Median over the repeats, per batch."""
        return np.median(self.seconds, axis=0)

    @property
    def batch_tokens(self) -> np.ndarray:
        """Generated tokens per batch."""
        return np.array([sum(map(len, rows)) for rows in self.rows])

    @property
    def heads(self) -> list[tuple[int, ...]]:
        """The decoder prefix of every example's row, before its generated ids."""
        return [
            tuple(made.tokens[row, : made.begin[row]].tolist())
            for made, rows in self.traces
            for row in range(rows)
        ]

    @property
    def tokens(self) -> list[list[int]]:
        """Generated ids of every example."""
        return [row for rows in self.rows for row in rows]


@dataclasses.dataclass(frozen=True)
class Prices:
    """Prices of calls and rounds on this machine."""

    calls: dict[Settings, Costs]  # timed alone, by the sampling settings of the strategies
    rounds: dict[str, RoundPrice]  # in the decode loop, by strategy, if it has a price


def token_count(entry: StrategyMeasurement) -> int:
    """Generated tokens of all examples."""
    return sum(map(len, entry.tokens))


def total_seconds(entry: StrategyMeasurement) -> float:
    """Seconds of all batches, each the median of its repeats."""
    return float(entry.batch_seconds.sum())


def seconds_per_token(entry: StrategyMeasurement) -> float:
    return total_seconds(entry) / max(token_count(entry), 1)


def loop_seconds_per_token(entry: StrategyMeasurement) -> float:
    """Seconds per token without the fixed cost per call, as in the speedup formulas."""
    fixed = np.median(entry.fixed, axis=0)
    loop = float(np.maximum(entry.batch_seconds - fixed, 0).sum())
    return max(loop, 1e-9) / max(token_count(entry), 1)


def fixed_seconds(entry: StrategyMeasurement) -> float:
    """Fixed seconds of all batches."""
    return float(np.median(entry.fixed, axis=0).sum())


def median_ms_per_token(entry: StrategyMeasurement) -> float:
    """Median over batches of time over tokens."""
    counts = [max(int(fetch_trace(g).committed[:rows].sum()), 1) for g, rows in entry.traces]
    return float(np.median(entry.batch_seconds / np.asarray(counts)) * 1e3)


def fetch_trace(generation: Any) -> Trace:
    return generation.trace
