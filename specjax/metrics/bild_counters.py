"""Counters of BiLD for any strategy: calls by model and their causes.

See docs/methods/bild.md, "Counters".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.contracts.spec import STATES
from specjax.decoding.state import Generation
from specjax.metrics.traces import Rounds


def handovers(rounds: Rounds, replaced: int, target: str) -> dict[str, Any]:
    """Calls of the large model (N_L, `target`) and of the small ones (N_S), and rollbacks.

    `fallback_percent` and `rollback_percent` are N_L and N_rb per generated token, as Kim et al.
    (2023), Table 4, seem to count; `_per_small` are the same per call of a small model, None
    without one. `replaced` is what `replaced_tokens` found.
    """
    counts = count_handovers(rounds, replaced, target)
    return counts | handover_rates(counts, rounds.tokens)


def count_handovers(rounds: Rounds, replaced: int, target: str) -> dict[str, int]:
    """The counts among `handovers`; those of several sets of rows add up."""
    drafting = [name for name in rounds.calls if name != target and not name.endswith(STATES)]
    small = sum(int(rounds.calls[name].sum()) for name in drafting)
    return {
        "small_calls": small,
        "large_calls": int(rounds.calls[target].sum()),
        "confidence_handovers": rounds.stops.get("stopped", 0),
        "window_handovers": rounds.stops.get("length", 0),
        "unreviewed_ends": int((rounds.ran & ~rounds.reviewed).sum()),
        "rollbacks": int((rounds.reviewed & (rounds.accepted < rounds.drafted)).sum()),
        "replaced": replaced,
        "dropped": int((rounds.drafted - rounds.accepted).sum()),
    }


def handover_rates(counts: Mapping[str, int], tokens: int) -> dict[str, float | None]:
    """The percentages among `handovers`, for so many generated tokens."""
    small, large, rollbacks = (counts[name] for name in ("small_calls", "large_calls", "rollbacks"))
    tokens = max(tokens, 1)
    return {
        "fallback_percent": 100 * large / tokens,
        "rollback_percent": 100 * rollbacks / tokens,
        "fallback_per_small_percent": _percent(large, small),
        "rollback_per_small_percent": _percent(rollbacks, small),
        "dropped_per_small_percent": _percent(counts["dropped"], small),
    }


def _percent(count: int, calls: int) -> float | None:
    return 100 * count / calls if calls else None


def replaced_tokens(generations: Sequence[tuple[Generation, int]]) -> int:
    """Rollbacks whose own token differs from the dropped one.

    From the first `rows` rows of every (generation with host arrays, rows).
    """
    return sum(_count_replaced(generation, rows) for generation, rows in generations)


def _count_replaced(generation: Generation, count: int) -> int:
    trace, tokens = generation.trace, np.asarray(generation.tokens)
    accepted, committed = np.asarray(trace.accepted), np.asarray(trace.committed)
    rows, rounds = np.nonzero(accepted[:count] < np.asarray(trace.drafted)[:count])
    place = accepted[rows, rounds]
    before = np.cumsum(committed, axis=1) - committed
    written = tokens[rows, np.asarray(generation.begin)[rows] + before[rows, rounds] + place]
    return int((written != np.asarray(trace.proposed)[rows, rounds, place]).sum())
