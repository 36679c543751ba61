"""Acceptance of the nodes of trees: the tables from which `theory.trees` builds shapes.

Letters: D levels of the tree, W children of a node at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specjax.contracts.tree import compute_depths_and_ranks
from specjax.decoding.state import Generation


def by_rank(
    generations: Sequence[tuple[Generation, int]], parents: Sequence[int]
) -> dict[str, list[list[Any]]]:
    """Tried and accepted nodes by depth and rank among siblings.

    A node is tried if its parent was accepted. Counts the first `rows` rows of every (generation
    with host arrays, rows), whose drafts were trees with these parents. Tables are [D, W]; `rate`
    is 0 for untried nodes. If a row ends within a draft, the children of its last token were not
    tried.
    """
    depths, ranks = compute_depths_and_ranks(parents)
    tried = np.zeros((max(depths) + 1, max(ranks) + 1), int)
    stood = np.zeros_like(tried)
    for generation, rows in generations:
        accepted, ended, nodes, written = _rounds(generation, rows)
        last = np.full(len(accepted), -1)
        for depth in range(len(tried)):
            tried_next = (depth < accepted) | ((depth == accepted) & ~ended)
            children = tried_next[:, None] & (last[:, None] == parents)
            stands = children & (nodes == written(depth)) & (depth < accepted)[:, None]
            np.add.at(tried, (depths, ranks), children.sum(axis=0))
            np.add.at(stood, (depths, ranks), stands.sum(axis=0))
            last = np.where(stands.any(axis=1), stands.argmax(axis=1), last)
    return add_rates(tried.tolist(), stood.tolist())


def add_rates(tried: list[list[int]], stood: list[list[int]]) -> dict[str, list[list[Any]]]:
    """The tables of `by_rank` from their counts, which add up over rows."""
    rate = np.array(stood) / np.maximum(tried, 1)
    return {"tried": tried, "stood": stood, "rate": rate.tolist()}


def _rounds(generation: Generation, rows: int) -> tuple[Any, ...]:
    """Accepted tokens [M], end flags [M] and nodes [M, K] of all M rounds of the rows.

    Also a function that returns the written token [M, 1] at a depth, counted from 0.
    """
    trace, tokens = generation.trace, np.asarray(generation.tokens)
    committed = np.asarray(trace.committed)[:rows]
    begin = np.asarray(generation.begin)[:rows, None] + np.cumsum(committed, axis=1) - committed
    row, turn = np.nonzero(committed)
    first, accepted = begin[row, turn], np.asarray(trace.accepted)[row, turn]

    def get_written_token(place: int) -> np.ndarray:
        return tokens[row, np.minimum(first + place, tokens.shape[1] - 1)][:, None]

    ended = accepted == committed[row, turn]
    return accepted, ended, np.asarray(trace.proposed)[row, turn], get_written_token
