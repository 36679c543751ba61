"""Reads the results of a search from its tables on the host."""

from __future__ import annotations

import dataclasses
import os.path
from collections.abc import Sequence

import jax
import numpy as np

from specjax.decoding.beams.state import BeamDecoder, Search


@dataclasses.dataclass(frozen=True)
class Found:
    """The finished hypotheses of a row, best first."""

    tokens: list[list[int]]  # with the token that ended each
    scores: list[float]  # log-probability over the length penalty's divisor


@dataclasses.dataclass(frozen=True)
class BeamStatistics:
    """Totals over prompts."""

    texts: int
    tokens: int  # of the best hypothesis of each
    steps: int  # beam steps
    rounds: int  # target calls
    nodes: int  # tokens that the target read after the prompts
    drafts: int  # calls of the drafter's model

    @property
    def steps_per_round(self) -> float:
        """Beam steps for each target call: 1 in plain beam search."""
        return self.steps / self.rounds if self.rounds else 0.0

    @property
    def nodes_per_round(self) -> float:
        """Tokens per text that each target call feeds."""
        return self.nodes / self.rounds if self.rounds else 0.0


def collect_found(search: Search, rows: int, sequences: int) -> list[Found]:
    """The best `sequences` of each of the first rows."""
    ended, tables = jax.device_get((search.finished, (search.tokens, search.ranks)))
    tokens = _trace_back(ended.step, ended.rank, *tables)
    made = []
    for row in range(rows):
        texts = [
            [*tokens[row, which, : ended.step[row, which]].tolist(), int(ended.token[row, which])]
            for which in range(sequences)
        ]
        made.append(Found(texts, ended.score[row, :sequences].tolist()))
    return made


def final_tokens(search: Search) -> list[int]:
    """The tokens that the best text of the first row certainly begins with.

    The best text is the best finished hypothesis or extends a live one; other finished hypotheses
    have already lost. For a completed row it is the best finished one.
    """
    made = jax.device_get(jax.tree.map(lambda x: x[:1], search))
    ended = made.finished
    step, rank = made.step[:, None], np.arange(made.live.score.shape[1])[None]
    alive = _trace_back(np.broadcast_to(step, rank.shape), rank, made.tokens, made.ranks)[0]
    texts: list[list[int]] = [
        text[: made.step[0]].tolist()
        for text, score in zip(alive, made.live.score[0], strict=True)
        if made.active[0] and score > -np.inf
    ]
    if ended.score[0, 0] > -np.inf:
        best = _trace_back(ended.step, ended.rank, made.tokens, made.ranks)[0, 0]
        texts.append([*best[: ended.step[0, 0]].tolist(), int(ended.token[0, 0])])
    return list(os.path.commonprefix(texts))


def _trace_back(
    step: np.ndarray, rank: np.ndarray, tokens: np.ndarray, ranks: np.ndarray
) -> np.ndarray:
    """The tokens [B, W, M] of hypotheses of `step` and `rank` [B, W]."""
    rows, beams = step.shape
    texts = np.zeros((rows, beams, tokens.shape[1]), np.int32)
    row = np.arange(rows)[:, None]
    for at in range(int(step.max(initial=0)), 0, -1):
        here = step >= at
        texts[:, :, at - 1] = np.where(here, tokens[row, at, rank], 0)
        rank = np.where(here, ranks[row, at, rank], rank)
    return texts


def statistics(
    decoder: BeamDecoder, searches: Sequence[tuple[Search, int]], best: Sequence[Sequence[int]]
) -> BeamStatistics:
    """Totals over the first rows of every (search, rows), whose best texts are given."""
    counted = np.zeros(3, int)
    for search, rows in searches:
        taken = jax.device_get((search.step, search.rounds, search.drafts))
        counted += np.sum(taken, axis=1, where=np.arange(len(taken[0])) < rows)
    steps, rounds, drafts = counted.tolist()
    nodes = rounds * len(decoder.depth)
    return BeamStatistics(len(best), sum(map(len, best)), steps, rounds, nodes, drafts)
