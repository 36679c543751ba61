"""Temperatures of a confidence head, one for each place of a draft.

Sequential temperature scaling of DSpark (arXiv 2607.05147): from left to right each place gets the
temperature of a grid with the least expected calibration error of the product of all confidences so
far, the estimate that the draft is accepted up to there. The error is that of Guo et al., "On
Calibration of Modern Neural Networks" (2017). Letters: N drafts of K places.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import expit, logit

BINS = 15
"""Bins of equal width in which estimates are compared with what happened."""

GRID = np.geomspace(0.1, 10.0, 201)
"""Temperatures that are tried; 1 is one of them."""


@dataclasses.dataclass(frozen=True)
class Confidences:
    """Recorded confidences of drafts, and whether their tokens were accepted."""

    confidence: np.ndarray  # [N, K] that a token is accepted if all before it are, not scaled
    accepted: np.ndarray  # [N, K] whether it was, or with which probability
    counted: np.ndarray  # [N, K] bool: which places count; none after one that does not

    def select(self, chosen: np.ndarray) -> Confidences:
        """Returns those of chosen [N] drafts."""
        return Confidences(self.confidence[chosen], self.accepted[chosen], self.counted[chosen])


def fit_temperatures(recorded: Confidences) -> tuple[float, ...]:
    """Fits the temperatures of K places; 1 where no place counts."""
    nearest_first = GRID[np.argsort(np.abs(np.log(GRID)), kind="stable")]  # of ties
    survived = np.cumprod(recorded.accepted, axis=1)
    chance, made = np.ones(len(survived)), []
    for place, counted in enumerate(recorded.counted.T):
        own = recorded.confidence[:, place]
        errors = [
            calibration_error((chance * scale(own, one))[counted], survived[counted, place])
            for one in nearest_first
        ]
        made.append(float(nearest_first[np.argmin(errors)]))
        chance = chance * scale(own, made[-1])
    return tuple(made)


def measure_calibration(
    recorded: Confidences, temperatures: tuple[float, ...] = ()
) -> tuple[float, ...]:
    """Measures the error of the product of confidences up to each of K places."""
    divisors = temperatures or (1.0,) * recorded.confidence.shape[1]
    chance = np.cumprod(scale(recorded.confidence, np.array(divisors)), axis=1)
    survived = np.cumprod(recorded.accepted, axis=1)
    return tuple(
        calibration_error(chance[counted, place], survived[counted, place])
        for place, counted in enumerate(recorded.counted.T)
    )


def scale(confidence: np.ndarray, temperature: np.ndarray | float) -> np.ndarray:
    """Divides the logit of each probability by a temperature."""
    return expit(logit(confidence.astype(np.float64)) / temperature)


def calibration_error(chance: np.ndarray, happened: np.ndarray) -> float:
    """The expected calibration error of probabilities [N] of what happened [N]; 0 for none."""
    which = np.minimum((chance * BINS).astype(int), BINS - 1)
    apart = np.bincount(which, chance - happened, minlength=BINS)
    return float(np.sum(np.abs(apart)) / max(len(chance), 1))
