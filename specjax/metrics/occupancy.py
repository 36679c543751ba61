"""How many slots of a batch that is refilled were active."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def occupancy(
    first: Sequence[int] | np.ndarray, ran: Sequence[int] | np.ndarray, slots: int
) -> tuple[float, float, int]:
    """The shares of active slots over all rounds, and before the last prompt began; rounds.

    `first` [N] is the round in which each row began, counted from 0, `ran` [N] how many it had. The
    second share leaves out the tail, in which slots stay free because no prompt is left; it is 0
    when the last prompt began before the first round.
    """
    start, end = np.asarray(first), np.asarray(first) + np.asarray(ran)
    rounds, full = int(end.max()), int(start.max())
    before = np.minimum(end, full) - start
    return float(np.sum(ran)) / (rounds * slots), float(before.sum()) / max(full * slots, 1), rounds
