"""Rounds as a decode records them, for figures computed from rounds."""

from __future__ import annotations

import numpy as np

from specjax.metrics.traces import Rounds


def rounds(committed, drafted, calls) -> Rounds:
    """One row whose rounds accepted all they committed but the target's own token.

    `calls` are the drafter's.
    """
    committed, drafted = np.array([committed]), np.array([drafted])
    return Rounds(
        begin=np.zeros(1, int),
        width=np.full_like(drafted, drafted.max()),
        drafted=drafted,
        accepted=committed - 1,
        committed=committed,
        reviewed=committed > 0,
        overlap=drafted * 0.0,
        calls={},
        runs={"drafter": calls},
        turns=committed.size,
        stops={},
    )
