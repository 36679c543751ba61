"""How often the nodes of trees stood: the tables that `theory.trees` makes shapes from.

Letters: D levels of the tree, W children of a node at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specjax.decoding.state import Generation
from specjax.theory.trees import places


def by_rank(
    generations: Sequence[tuple[Generation, int]], parents: Sequence[int]
) -> dict[str, list[list[Any]]]:
    """Of nodes at a depth and of a rank among siblings: how many hung on one that stood, and stood.

    From the first `rows` rows of every (generation with host arrays, rows), whose drafts were trees
    with these parents. Tables are [D, W]; `rate` is 0 where nothing was tried. Where a row ends
    within a draft, what hangs on its last token was not tried.
    """
    depths, ranks = places(parents)
    tried = np.zeros((max(depths) + 1, max(ranks) + 1), int)
    stood = np.zeros_like(tried)
    children: dict[int, list[int]] = {node: [] for node in range(-1, len(parents))}
    for node, parent in enumerate(parents):
        children[parent].append(node)
    for generation, rows in generations:
        for accepted, ended, proposed, text in _rounds(generation, rows):
            node = -1
            for depth in range(accepted):
                tried[depth, : len(children[node])] += 1
                node = next(k for k in children[node] if proposed[k] == text[depth])
                stood[depth, ranks[node]] += 1
            if children[node] and not ended:
                tried[accepted, : len(children[node])] += 1
    rate = stood / np.maximum(tried, 1)
    return {"tried": tried.tolist(), "stood": stood.tolist(), "rate": rate.tolist()}


def _rounds(generation: Generation, rows: int) -> Any:
    """Of every round of every row what stood, whether the row ended so, the nodes, and the text."""
    trace = generation.trace
    accepted, committed = np.asarray(trace.accepted), np.asarray(trace.committed)
    proposed, tokens = np.asarray(trace.proposed), np.asarray(generation.tokens)
    for row in range(rows):
        place = int(generation.begin[row])
        for turn in np.flatnonzero(committed[row]):
            stood, count = int(accepted[row, turn]), int(committed[row, turn])
            yield stood, stood == count, proposed[row, turn], tokens[row, place : place + count]
            place += count
