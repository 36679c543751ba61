"""Figures of strategies by group of examples: by task, by direction, by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.metrics.traces import Rounds

Figures = dict[str, dict[str, Any]]
"""Figures by group."""


def by_group(groups: Sequence[str], rounds: Rounds, seconds: np.ndarray | None) -> Figures:
    """Figures of one strategy by group, in order of first occurrence.

    `accept_rate` is accepted over drafted tokens, those after a rejection too
    (docs/methods/selection.md, "Accept rate"); None where nothing was drafted.

    Args:
      groups: of the N examples.
      rounds: of all of them.
      seconds: [N] of decoding each separately; None if unknown, so that there is no
        `ms_per_token` either.
    """
    names = np.array(groups)
    return {name: _figures(rounds, names == name, seconds) for name in dict.fromkeys(groups)}


def add_speedups(
    strategies: Mapping[str, Figures], bases: Mapping[str, Figures]
) -> dict[str, Figures]:
    """The figures of every strategy with `speedup` over those of its baseline."""
    return {
        strategy: {
            name: {**group, "speedup": _ratio(bases[strategy][name]["ms_per_token"], group)}
            for name, group in figures.items()
        }
        for strategy, figures in strategies.items()
    }


def _figures(rounds: Rounds, mine: np.ndarray, seconds: np.ndarray | None) -> dict[str, Any]:
    drafted, accepted, tokens, ran = (
        int(counts[mine].sum())
        for counts in (rounds.drafted, rounds.accepted, rounds.committed, rounds.ran)
    )
    known = None if seconds is None or not tokens else float(seconds[mine].sum())
    return {
        "examples": int(mine.sum()),
        "tokens": tokens,
        "ms_per_token": None if known is None else known / tokens * 1e3,
        "accept_rate": accepted / drafted if drafted else None,
        "tokens_per_round": tokens / ran if ran else None,
    }


def _ratio(base: float | None, figures: Mapping[str, Any]) -> float | None:
    own = figures["ms_per_token"]
    return base / own if base and own else None
