"""Trees of drafted tokens: expected tokens of a shape, and the best shapes.

Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding" (2024), section 4
(docs/methods/trees.md), with acceptance that may differ from depth to depth. Every function raises
ValueError on impossible arguments.

Letters: D levels, W children of a node at most, N nodes. `acceptance` [D, W] is the probability
that the child of a rank is accepted, given that its parent is; ranks count from the first child
tried, rows from the children of the pending token. Times are in target steps of one token. The time
of a drafter's call for a level depends on the number of nodes it feeds: those of the level above
with children, none for the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from specjax.contracts.tree import compute_depths_and_ranks
from specjax.theory.checks import count, non_negative, positive, probability

ROUNDING = 1e-9
"""Tolerance above 1 of the summed acceptance of a node's children."""


@dataclasses.dataclass(frozen=True)
class Fastest:
    """The tree of the largest improvement."""

    parents: tuple[int, ...]  # in the form of a drafter's `parents`; empty: draft nothing
    tokens: float  # expected of a round
    improvement: float  # over autoregressive decoding


def expected_tokens(acceptance: ArrayLike, parents: Sequence[int]) -> float:
    """Expected tokens of a round: 1 plus the acceptance probability of every node's path.

    Raises ValueError where the tree is deeper or wider than the table.
    """
    table = _check_acceptance(acceptance)
    depths, ranks = compute_depths_and_ranks(parents)
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
    """Parents of the tree of at most `nodes` nodes with the most expected tokens.

    Dynamic programming over (depth, rank, nodes) splits nodes between a child's subtree and its
    later siblings. Nodes that can never be accepted are left out.
    """
    nodes = int(count("nodes", nodes, least=1))
    _, given = _program_table(_check_acceptance(acceptance), nodes)
    return _parents(given, nodes)


def tree_improvement(
    acceptance: ArrayLike,
    parents: Sequence[int],
    cost: ArrayLike,
    verification: ArrayLike = 1.0,
) -> float:
    """Speedup over autoregressive decoding of rounds that draft this tree.

    `cost` is the time of the drafter's call for a level, one number or [F + 1] by the nodes that it
    feeds; `verification` that of the target's call, one number or [N + 1] by the nodes it reads.
    """
    size, widest = len(parents), max(count_fed_nodes(parents), default=0)
    calls = _by_count("cost", "nodes that are fed", cost, widest)
    reading = _by_count("verification", "nodes", verification, size)
    time = sum(calls[count] for count in count_fed_nodes(parents)) + reading[size]
    return expected_tokens(acceptance, parents) / float(positive("the time of a round", time))


def fastest(
    acceptance: ArrayLike, nodes: int, cost: ArrayLike, verification: ArrayLike = 1.0
) -> Fastest:
    """The fastest tree of 0 to `nodes` nodes; arguments as `tree_improvement`."""
    found = fastest_by_size(acceptance, nodes, cost, verification)
    return max(found, key=lambda tree: tree.improvement)


def fastest_by_size(
    acceptance: ArrayLike, nodes: int, cost: ArrayLike, verification: ArrayLike = 1.0
) -> list[Fastest]:
    """The fastest tree of every number of nodes, 0 ... `nodes`; arguments as `tree_improvement`.

    Considers the tree with the most tokens for each number of levels. Numbers of nodes without such
    a tree are left out, because trees have no nodes that can never be accepted.
    """
    nodes, table = int(count("nodes", nodes, least=1)), _check_acceptance(acceptance)
    found: dict[int, Fastest] = {}
    _by_count("cost", "nodes that are fed", cost, nodes // 2)  # every fed node has a child
    _by_count("verification", "nodes", verification, nodes)
    for levels in range(len(table) + 1):
        given = _program_table(table[:levels], nodes)[1]
        for size in range(nodes + 1):
            parents = _parents(given, size)
            improvement = tree_improvement(table, parents, cost, verification)
            known = found.get(len(parents))
            if known is None or improvement > known.improvement:
                tokens = expected_tokens(table, parents)
                found[len(parents)] = Fastest(parents, tokens, improvement)
    return [found[size] for size in sorted(found)]


def count_fed_nodes(parents: Sequence[int]) -> tuple[int, ...]:
    """The nodes that the drafter is fed in the call for each level: 0, then those with children."""
    depths, _ = compute_depths_and_ranks(parents)
    inner = [depths[node] for node in sorted(set(parents) - {-1})]
    levels = max(depths, default=-1) + 1
    return (0, *(inner.count(depth) for depth in range(levels - 1)))[:levels]


def _check_acceptance(acceptance: ArrayLike) -> np.ndarray:
    table = probability("acceptance", acceptance)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"acceptance has shape {table.shape}; it must be [levels, children]")
    together = np.maximum(table.sum(axis=1) - ROUNDING, 0.0)
    probability("the acceptance of a node's children together", together)
    return table


def _by_count(name: str, counted: str, times: ArrayLike, most: int) -> np.ndarray:
    """Times [most + 1] by a count of 0 ... most."""
    times = non_negative(name, times)
    if not times.ndim:
        return np.full(most + 1, times)
    if len(times) <= most:
        raise ValueError(f"{name} is known of {len(times) - 1} {counted}; it must be of {most}")
    return times[: most + 1]


def _program_table(table: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Expected accepted nodes [N + 1] of the best tree by number of nodes, and the choices.

    Choices [D + 1, W + 1, N + 1] are the number of nodes, of those left for siblings from a rank
    on, that the first sibling's subtree gets; 0 ends the siblings.
    """
    levels, width = table.shape
    value = np.zeros((levels + 1, width + 1, nodes + 1))
    given = np.zeros(value.shape, int)
    for depth in reversed(range(levels)):
        for rank in reversed(range(width)):
            for left in range(1, nodes + 1):
                # Of 1 ... left nodes for this child, one is the child.
                below, later = value[depth + 1, 0, :left], value[depth, rank + 1, left - 1 :: -1]
                gain = table[depth, rank] * (1.0 + below) + later
                most = int(np.argmax(gain))
                if gain[most] > 0:
                    value[depth, rank, left], given[depth, rank, left] = gain[most], most + 1
    return value[0, 0], given


def _parents(given: np.ndarray, nodes: int) -> tuple[int, ...]:
    """The tree of the choices of `_program_table`."""
    parents: list[int] = []

    def hang(parent: int, depth: int, left: int) -> None:
        rank = 0
        while share := given[depth, rank, left]:
            parents.append(parent)
            hang(len(parents) - 1, depth + 1, share - 1)
            left, rank = left - share, rank + 1

    hang(-1, 0, nodes)
    return tuple(parents)
