"""Rewards of an arm for a query: agreement with the target, cheapness, or measured speed.

Context-aware assistant selection, docs/methods/selection.md, "Rewards". Letters: N queries, k arms.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specjax.contracts import fields

ALIGNMENT, SPEEDUP = KINDS = ("alignment", "speedup")
ROUGE_L, TOKEN_LCS = MEASURES = ("rouge_l", "token_lcs")


@dataclasses.dataclass(frozen=True)
class Reward:
    """The reward that a policy is trained for.

    `alignment`: `align_weight * f + (1 - align_weight) * c` (Eq. 2) with the agreement f of an
    arm's own output with the target's under `measure`, and its cheapness c with parameters counted
    in `unit`. `speedup`: measured against the target alone.

    Raises:
      ValueError: when a setting is unknown or out of range.
    """

    kind: str = fields.choice(
        KINDS, ALIGNMENT, help="alignment with the target and cheapness, or measured speedup"
    )
    measure: str = fields.choice(MEASURES, ROUGE_L, help="measure of alignment")
    align_weight: float = fields.number(
        0.5, bounds="[0, 1]", help="weight of alignment against cheapness"
    )
    unit: float = fields.number(1e9, bounds="(0, inf)", help="parameters that cheapness counts in")

    def __post_init__(self) -> None:
        fields.check(self)


def rouge_l(reference: str, output: str) -> float:
    """ROUGE-L F1 in [0, 1] on lower-case alphanumeric words without stemming; 0 if one has none."""
    return _scorer().score(reference, output)[_ROUGE].fmeasure


def token_lcs(reference: Sequence[int], output: Sequence[int]) -> float:
    """F1 in [0, 1] of the longest common subsequence of token ids; 0 if a side is empty."""
    if not len(reference) or not len(output):
        return 0.0
    return 2 * _common(reference, output) / (len(reference) + len(output))


def cheapness(parameters: npt.ArrayLike, unit: float = 1e9) -> np.ndarray:
    """Cost term c [k] of the arms offered: `1 - exp((p - p_max) / unit)` for p parameters.

    0 for the largest arm, up to 1 for smaller ones: more is cheaper.
    """
    sizes = np.asarray(parameters, np.float64)
    return -np.expm1((sizes - sizes.max()) / unit)


def blend(agreement: np.ndarray, cheap: np.ndarray, align_weight: float) -> np.ndarray:
    """Rewards [N, k] of agreement f [N, k] and cheapness c [k] (Eq. 2)."""
    return align_weight * agreement + (1 - align_weight) * cheap


@functools.cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([_ROUGE], use_stemmer=False)


_ROUGE = "rougeL"


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common subsequence."""
    items = np.asarray(second)
    best = np.zeros(len(items) + 1, np.int64)  # of the rows so far and each prefix of `second`
    for item in first:
        longer = np.maximum(best[1:], best[:-1] + (items == item))
        best[1:] = np.maximum.accumulate(longer)
    return int(best[-1])
