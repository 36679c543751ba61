"""Choosing how wide prompts are padded: few widths, since each is a program to compile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PADDING = 0.1
"""Padding of all batches at most, as a share of their positions, prompts and new tokens."""

MOST_CANDIDATES = 512
"""Widths that are considered; of more distinct lengths every second, third, ... one is."""


def fewest_widths(
    lengths: Sequence[int], new_tokens: int, most: float = PADDING
) -> tuple[int, ...]:
    """The fewest widths, ascending, to which batches of these prompt lengths can be padded.

    Every batch is padded to the next width. What that adds is at most `most` of the positions
    that the batches have without it: their prompts, and `new_tokens` each. A position of a prompt
    costs less than a new token, for all of them are read in one call, so that the share of time is
    smaller. By dynamic programming: of all ways to choose so many widths the one that pads least.
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    step = -(-len(values) // MOST_CANDIDATES)
    places = np.arange(len(values) - 1, -1, -step)[::-1]  # the longest is one of them
    padding = _padding(values, counts, places)
    allowed = most * float(counts @ (values + new_tokens))
    least, choices = padding[0], []
    while least[-1] > allowed and len(choices) < len(places) - 1:
        # [i, j]: the widths before end with candidate i, the next one is candidate j
        total = least[:, None] + padding[1:]
        choices.append(total.argmin(axis=0))
        least = total.min(axis=0)
    last, chosen = len(places) - 1, [len(places) - 1]
    for before in reversed(choices):
        last = int(before[last])
        chosen.append(last)
    return tuple(int(values[places[index]]) for index in reversed(chosen))


def _padding(values: np.ndarray, counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Padding [1 + C, C] of the lengths after one candidate, padded to another.

    Row 0 is of all lengths up to the candidate; infinite where the order is wrong.
    """
    number = np.concatenate([[0], np.cumsum(counts)])
    total = np.concatenate([[0], np.cumsum(counts * values)])
    ends = places + 1
    starts = np.concatenate([[0], ends])
    rows = number[ends] - number[starts][:, None]
    added = rows * values[places] - (total[ends] - total[starts][:, None])
    return np.where(rows > 0, added, np.inf)
