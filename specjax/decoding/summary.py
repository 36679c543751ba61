"""Figures of a decode, computed from its trace."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np

from specjax.decoding.state import Decoder, Generation


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Totals over rows; rates are ratios of totals."""

    tokens: int
    rounds: int  # rounds summed over rows
    drafted: int
    accepted: int  # tested drafts that were accepted
    tested: int  # positions that an acceptance test covered
    overlap: float  # sum of min(p, q) over them
    calls: dict[str, int]  # runs by `Call.part`, summed over rows
    widths: dict[int, int]  # target calls by their width in drafted tokens

    @property
    def reviews(self) -> int:
        """Runs of the target, summed over rows."""
        return sum(self.widths.values())

    @property
    def acceptance_rate(self) -> float:
        """Accepted over tested positions; 0 when nothing was drafted.

        See docs/methods/speculative_sampling.md, "Measuring acceptance".
        """
        return self.accepted / self.tested if self.tested else 0.0

    @property
    def tokens_per_target_call(self) -> float:
        """Block efficiency: tokens per run of the target; 0 when it never ran."""
        return self.tokens / self.reviews if self.reviews else 0.0

    @property
    def drafted_per_round(self) -> float:
        return self.drafted / self.rounds if self.rounds else 0.0


def summarize(decoder: Decoder, generations: Sequence[tuple[Generation, int]]) -> Statistics:
    """Totals over the first `rows` rows of every (generation, rows)."""
    totals = dict.fromkeys(("tokens", "rounds", "drafted", "accepted", "tested"), 0)
    calls = dict.fromkeys(decoder.parts, 0)
    overlap = 0.0
    widths: Counter[int] = Counter()
    for generation, rows in generations:
        trace = jax.device_get(generation.trace)
        totals["tokens"] += int(trace.committed[:rows].sum())
        totals["rounds"] += int((trace.committed[:rows] > 0).sum())
        totals["drafted"] += int(trace.drafted[:rows].sum())
        reviewed = trace.reviewed[:rows]
        totals["accepted"] += int(trace.accepted[:rows][reviewed].sum())
        totals["tested"] += int(trace.tested[:rows].sum())
        overlap += float(np.sum(trace.overlap[:rows], dtype=np.float64))
        for name in calls:
            calls[name] += int(trace.calls[name][:rows].sum())
        widths.update(trace.width[:rows][reviewed].tolist())
    return Statistics(**totals, overlap=overlap, calls=calls, widths=dict(sorted(widths.items())))
