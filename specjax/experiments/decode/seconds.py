"""How long a strategy took for all examples, and for a token of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from specjax.decoding.trace import Trace
from specjax.experiments.decode.records import Measured


def token_count(entry: Measured) -> int:
    """Generated tokens of all examples."""
    return sum(map(len, entry.tokens))


def total_seconds(entry: Measured) -> float:
    """Of all batches, each the median of its repeats."""
    return float(entry.batch_seconds.sum())


def seconds_per_token(entry: Measured) -> float:
    return total_seconds(entry) / max(token_count(entry), 1)


def loop_seconds_per_token(entry: Measured) -> float:
    """Without the fixed cost per call, which the speedup formulas do not know."""
    fixed = np.median(entry.fixed, axis=0)
    loop = float(np.maximum(entry.batch_seconds - fixed, 0).sum())
    return max(loop, 1e-9) / max(token_count(entry), 1)


def fixed_seconds(entry: Measured) -> float:
    """What all batches cost once."""
    return float(np.median(entry.fixed, axis=0).sum())


def median_ms_per_token(entry: Measured) -> float:
    """Median over batches of time over tokens."""
    counts = [max(int(trace_of(g).committed[:rows].sum()), 1) for g, rows in entry.traces]
    return float(np.median(entry.batch_seconds / np.asarray(counts)) * 1e3)


def trace_of(generation: Any) -> Trace:
    return generation.trace
