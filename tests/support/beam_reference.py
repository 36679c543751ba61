"""Beam search as it is told in a book: lists of hypotheses, and a law of the next token."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from specjax.models.base import Cache, Output
from specjax.models.info import ModelInfo

Law = Callable[[tuple[int, ...]], np.ndarray]
"""Log-probabilities [V] behind the tokens generated so far."""


def run_search(
    distribution: Law,
    *,
    beams: int,
    eos: tuple[int, ...],
    most: int,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
) -> tuple[list[tuple[float, tuple[int, ...]]], int]:
    """Finished hypotheses with their scores, best first, and the steps taken."""
    live, finished = [(0.0, ())], []
    for length in range(1, most + 1):
        found = [
            (score + logp, rank, token, before)
            for rank, (score, before) in enumerate(live)
            for token, logp in enumerate(distribution(before))
        ]
        found.sort(key=lambda x: (-x[0], x[1], x[2]))
        found = found[: max(2, 1 + len(eos)) * beams]
        made = [(score, (*before, token)) for score, _, token, before in found]
        ends = [text[-1] in eos or length == most for _, text in made]
        finished += [
            (score / length**length_penalty, text)
            for (score, text), end in zip(made[:beams], ends, strict=False)
            if end
        ]
        finished = sorted(finished, key=lambda x: -x[0])[:beams]
        live = [one for one, end in zip(made, ends, strict=True) if not end][:beams]
        if length == most or (len(finished) == beams and early_stopping is True):
            break
        bound = most if early_stopping == "never" and length_penalty > 0 else length
        if len(finished) == beams and live[0][0] / bound**length_penalty <= finished[-1][0]:
            break
    return finished, length


@dataclasses.dataclass(frozen=True)
class Bigram:
    """The next token depends on the last one and its place: `by_token` [V, V], `by_place` [P, V].

    Prompts are one token. It takes its places from what it is told of the tree.
    """

    vocab_size: int
    eos: tuple[int, ...] = (1,)
    start_token: int | None = None
    max_positions: int | None = None

    @property
    def info(self):
        known = {"start_token": self.start_token, "max_positions": self.max_positions}
        return ModelInfo(self.vocab_size, 1, self.eos, **known)

    def start(self, params, prompt, prompt_length, capacity, **wanted):
        return Cache((), prompt_length - 1), None

    def extend(self, params, tokens, cache, *, position, visible):
        place = params["by_place"][position[:, -tokens.shape[1] :]]
        logits = params["by_token"][tokens] + place
        return Output(logits), Cache((), cache.length + tokens.shape[1])

    def keep(self, cache, path, count):
        return Cache((), cache.length + count)

    def law(self, params: dict[str, np.ndarray], prompt: int) -> Law:
        """The same as a law of lists."""
        by_token, by_place = (np.asarray(x, np.float64) for x in params.values())
        logits = by_place[:, None] + by_token
        logp = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        return lambda before: logp[len(before), (prompt, *before)[-1]]


def close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
