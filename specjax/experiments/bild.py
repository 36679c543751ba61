"""What all configs of the Big Little Decoder decode and sweep (Kim et al. 2023, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.defaults import AUTOREGRESSIVE, bild, decode_config, neural

NUCLEUS = {"temperature": 1.0, "top_p": 0.8}
"""Sampling of Table 5."""

WINDOWS = (3, 5, 7, 10)
"""Draft lengths of the baselines without a fallback."""


def bild_config(fallback: Sequence[float], rollback: Sequence[float], **changes: Any) -> ConfigDict:
    """BiLD with an unaligned and an aligned drafter, its ablations and baselines, and their sweep.

    Decodes at the middle of the thresholds; `configs/sweep.py` takes all of them.
    """
    middle = fallback[len(fallback) // 2], rollback[len(rollback) // 2]
    thresholds = {"fallback": tuple(fallback), "rollback": tuple(rollback)}
    strategies = {
        "autoregressive": AUTOREGRESSIVE,
        "bild": bild(*middle, model="drafter"),
        "bild_aligned": bild(*middle, model="aligned"),
        "no_rollback": bild(middle[0], "inf", model="drafter"),
        "no_fallback": bild(0.0, middle[1], model="drafter", length=5),
        "speculative": neural("drafter", 3),
        "speculative_aligned": neural("aligned", 3),
        "nucleus": {"drafter": "none", **NUCLEUS},
        "bild_nucleus": bild(*middle, model="aligned", **NUCLEUS),
        "speculative_nucleus": neural("aligned", 3, **NUCLEUS),
    }
    sweep = {
        "bild": thresholds,
        "bild_aligned": thresholds,
        "no_rollback": {"fallback": tuple(fallback)},
        "no_fallback": {"length": WINDOWS, "rollback": tuple(rollback)},
        "speculative": {"length": WINDOWS},
        "speculative_aligned": {"length": WINDOWS},
    }
    return decode_config(strategies=strategies, sweep=sweep, **changes)
