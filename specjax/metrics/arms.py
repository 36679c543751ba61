"""What the arms of a strategy did that chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specjax.metrics.traces import Rounds


def arm_figures(rounds: Rounds, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By arm: texts that began with it, its rounds, and their tokens.

    `accept_rate` is accepted over drafted tokens, those after a rejection too
    (docs/methods/selection.md, "Accept rate"); None where nothing was drafted.
    """
    figures = {}
    for arm, name in enumerate(names):
        mine = rounds.ran & (rounds.arm == arm)
        drafted, accepted = (
            int(counts[mine].sum()) for counts in (rounds.drafted, rounds.accepted)
        )
        figures[name] = {
            "texts": int(mine[:, 0].sum()),
            "rounds": int(mine.sum()),
            "tokens": int(rounds.committed[mine].sum()),
            "drafted": drafted,
            "accepted": accepted,
            "accept_rate": accepted / drafted if drafted else None,
        }
    return figures


def arms_of_texts(rounds: Rounds, names: Sequence[str]) -> list[dict[str, int]]:
    """Of every text the number of rounds that each arm had, without those that had none."""
    if rounds.arm is None:
        raise ValueError("the rounds do not say which drafter had them")
    pairs = zip(rounds.arm, rounds.ran, strict=True)
    counts = [np.bincount(arm[ran], minlength=len(names)) for arm, ran in pairs]
    return [{name: int(n) for name, n in zip(names, row, strict=True) if n} for row in counts]
