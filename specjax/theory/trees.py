"""Trees of drafted tokens: what a shape gives, and the best shape of so many nodes.

Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding" (2024), section 4
(docs/methods/trees.md), with acceptance that may differ from depth to depth. Every function raises
ValueError on impossible arguments.

Letters: D levels, W children of a node at most, N nodes. `acceptance` [D, W] holds the chance that
the child of a rank stands, given that the node it hangs on stood; ranks count from the first child
tried, rows from the children of the pending token. Times are in target steps of one token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from specjax.core.tree import places
from specjax.theory.checks import count, non_negative, positive, probability

ROUNDING = 1e-9
"""How far above 1 the children of a node may stand together."""


@dataclasses.dataclass(frozen=True)
class Fastest:
    """The tree of the largest improvement."""

    parents: tuple[int, ...]  # as the drafter `neural_tree` takes them; empty: draft nothing
    tokens: float  # expected of a round
    improvement: float  # over autoregressive decoding


def expected_tokens(acceptance: ArrayLike, parents: Sequence[int]) -> float:
    """Expected tokens of a round: 1 and, of every node, the chance that its path stands.

    Raises ValueError where the tree is deeper or wider than the table.
    """
    table = _checked(acceptance)
    depths, ranks = places(parents)
    levels, width = (max(numbers, default=-1) + 1 for numbers in (depths, ranks))
    if levels > table.shape[0] or width > table.shape[1]:
        raise ValueError(
            f"the tree has {levels} levels and {width} children of a node;"
            f" acceptance is known of {table.shape[0]} and {table.shape[1]}"
        )
    stands = np.ones(len(parents) + 1)  # the last one is that of -1
    for node, (parent, depth, rank) in enumerate(zip(parents, depths, ranks, strict=True)):
        stands[node] = stands[parent] * table[depth, rank]
    return float(stands.sum())


def best(acceptance: ArrayLike, nodes: int) -> tuple[int, ...]:
    """Parents of the tree of at most so many nodes with the most expected tokens.

    By dynamic programming over (depth, rank, nodes): what later siblings get, a child and what
    hangs on it do not. Nodes that can never stand are left out.
    """
    nodes = int(count("nodes", nodes, least=1))
    _, given = _programme(_checked(acceptance), nodes)
    return _parents(given, nodes)


def tree_improvement(
    acceptance: ArrayLike,
    parents: Sequence[int],
    cost: ArrayLike,
    verification: ArrayLike = 1.0,
) -> float:
    """Speedup over autoregressive decoding of rounds that draft this tree.

    `cost` is the time of the drafter's call for a level, one number or [D]; `verification` that of
    the target's call, one number or [N + 1] by the nodes that it reads.
    """
    levels = max(places(parents)[0], default=-1) + 1
    table = _checked(acceptance)
    drafting = _drafting(cost, len(table))[levels]
    time = drafting + _verification(verification, len(parents))[len(parents)]
    return expected_tokens(table, parents) / float(positive("the time of a round", time))


def fastest(
    acceptance: ArrayLike, nodes: int, cost: ArrayLike, verification: ArrayLike = 1.0
) -> Fastest:
    """The fastest tree of at most so many nodes, none included; arguments as `tree_improvement`.

    Each number of levels and of nodes has its best tree; the one that is worth its time is taken.
    """
    nodes, table = int(count("nodes", nodes, least=1)), _checked(acceptance)
    drafting, reading = _drafting(cost, len(table)), _verification(verification, nodes)
    found = Fastest((), 1.0, 1.0 / float(positive("the time of a round", reading[0])))
    for levels in range(1, len(table) + 1):
        gained, given = _programme(table[:levels], nodes)
        improvement = (1.0 + gained) / (drafting[levels] + reading)
        size = int(np.argmax(improvement[1:])) + 1
        if improvement[size] > found.improvement:
            tokens = 1.0 + float(gained[size])
            found = Fastest(_parents(given, size), tokens, float(improvement[size]))
    return found


def _checked(acceptance: ArrayLike) -> np.ndarray:
    table = probability("acceptance", acceptance)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"acceptance has shape {table.shape}; it must be [levels, children]")
    together = np.maximum(table.sum(axis=1) - ROUNDING, 0.0)
    probability("the acceptance of a node's children together", together)
    return table


def _drafting(cost: ArrayLike, levels: int) -> np.ndarray:
    """Time [D + 1] of drafting so many levels."""
    cost = np.broadcast_to(non_negative("cost", cost), (levels,))
    return np.concatenate([[0.0], np.cumsum(cost)])


def _verification(verification: ArrayLike, nodes: int) -> np.ndarray:
    """Time [N + 1] of reading so many nodes."""
    verification = non_negative("verification", verification)
    if not verification.ndim:
        return np.full(nodes + 1, verification)
    if len(verification) <= nodes:
        raise ValueError(
            f"verification is known of {len(verification) - 1} nodes; it must be of {nodes}"
        )
    return verification[: nodes + 1]


def _programme(table: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Expected nodes [N + 1] that stand of the best tree of at most so many, and the choices.

    Those [D + 1, W + 1, N + 1] say how many of the nodes that are left for siblings from a rank on
    the first of them gets, itself included; 0 ends the siblings.
    """
    levels, width = table.shape
    value = np.zeros((levels + 1, width + 1, nodes + 1))
    given = np.zeros(value.shape, int)
    for depth in reversed(range(levels)):
        for rank in reversed(range(width)):
            for left in range(1, nodes + 1):
                # Of 1 ... left nodes for this child, one is itself.
                below, later = value[depth + 1, 0, :left], value[depth, rank + 1, left - 1 :: -1]
                gain = table[depth, rank] * (1.0 + below) + later
                most = int(np.argmax(gain))
                if gain[most] > 0:
                    value[depth, rank, left], given[depth, rank, left] = gain[most], most + 1
    return value[0, 0], given


def _parents(given: np.ndarray, nodes: int) -> tuple[int, ...]:
    """The tree that the choices of `_programme` make."""
    parents: list[int] = []

    def hang(parent: int, depth: int, left: int) -> None:
        rank = 0
        while share := given[depth, rank, left]:
            parents.append(parent)
            hang(len(parents) - 1, depth + 1, share - 1)
            left, rank = left - share, rank + 1

    hang(-1, 0, nodes)
    return tuple(parents)
