"""Closed forms of speculative beam search (docs/methods/beam_search.md).

Letters: D drafted steps of a round, `stands` [D] the probability that all live hypotheses of a step
are among the drafted ones, given that those of the previous steps are. Times
are in steps of plain beam search. Every function raises ValueError on impossible arguments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count, non_negative, probability
from specjax.theory.speculative import expected_tokens_by_position, improvement


def all_stand(chance: ArrayLike, beams: ArrayLike) -> np.ndarray:
    """`stands` if each of the live hypotheses is drafted independently with `chance`."""
    return probability("chance", chance) ** count("beams", beams, least=1)


def expected_steps(stands: ArrayLike) -> np.ndarray:
    """Expected beam steps of a round of an unfinished text, with stands [..., D].

    The first step needs no draft; each other step needs all steps before it to be accepted.
    """
    return expected_tokens_by_position(stands)


def expected_rounds(stands: ArrayLike, steps: int) -> float:
    """Expected rounds of a text with `steps` beam steps.

    Its last round takes at most the remaining steps.
    """
    reached = np.concatenate([[1.0], np.cumprod(probability("stands", stands))])
    taken = reached - np.append(reached[1:], 0.0)  # [D + 1]: the probability of 1, 2, ... steps
    rounds = np.zeros(int(count("steps", steps)) + 1)  # by remaining steps
    for left in range(1, len(rounds)):
        after = np.maximum(left - 1 - np.arange(len(taken)), 0)
        rounds[left] = 1.0 + taken @ rounds[after]
    return float(rounds[-1])


def best_length(stands: ArrayLike, drafting: float, reading: ArrayLike) -> int:
    """The number of drafted steps with the largest speedup; the smallest on ties.

    `drafting` is the time of a drafter's call, `reading` [D + 1] that of a target call after 0 to D
    drafted steps.
    """
    stands, reading = probability("stands", stands), non_negative("reading", reading)
    if len(reading) != len(stands) + 1:
        raise ValueError(f"reading has {len(reading)} times; it must have {len(stands) + 1}")
    lengths = np.arange(len(reading))
    steps = np.array([expected_steps(stands[:length]) for length in lengths])
    drafts = lengths * non_negative("drafting", drafting)
    return int(improvement(steps, drafts, reading).argmax())
