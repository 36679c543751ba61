"""Adds trees to a search: a decode of a wide tree predicts the fastest shapes.

The speedup of every shape (`theory.trees`) follows from the acceptance by depth and rank
(`metrics.trees`), the drafter's calls by nodes fed, and the target's calls by nodes read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.contracts.spec import Call
from specjax.contracts.tree import compute_depths_and_ranks
from specjax.drafting.chain_fields import CHAIN_FIELDS
from specjax.drafting.proposer import LAG
from specjax.experiments.recipes.trees import WIDTHS, repeat_last_level
from specjax.measuring.cost import SHORTEST, Costs
from specjax.runtime.errors import UserError
from specjax.theory.trees import Fastest, fastest_by_size

MOST = 128
"""Most nodes of a tree: the search tries every number of nodes and of levels."""

FEWEST = 2
"""Nodes of a tree that branches."""

_OF_CHAINS = ("drafter", "length", "reader", *CHAIN_FIELDS)


def check_trees(nodes: int, objective: str, spec: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Refuses a search for trees without chains of a model, or by another objective than time.

    Raises:
      UserError: saying why.
    """
    if not nodes:
        return
    must = f"config.tree_nodes is {nodes}; it must be"
    if not FEWEST <= nodes <= MOST:
        raise UserError(f"{must} 0 (no trees) or from {FEWEST} to {MOST}")
    if spec["drafter"] != "neural" or tuple(fields) != ("length",):
        raise UserError(
            f"{must} 0 (no trees): trees are searched only with the draft lengths of a strategy"
            " with the drafter 'neural', and with no other field"
        )
    if objective != "time":
        raise UserError(f"{must} 0 (no trees) with objective {objective!r}: prices ignore widths")


def tree_spec(spec: Mapping[str, Any], **shape: Any) -> dict[str, Any]:
    """The fields of a strategy that drafts trees of a shape where `spec` drafts chains.

    Traversal verification replaces the block verification of chains.
    """
    shared = {field: value for field, value in spec.items() if field not in _OF_CHAINS}
    if shared.get("rule") == "block":
        shared["rule"] = "traversal"
    return {"drafter": "neural", **shape, **shared}


def wide_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    return tree_spec(spec, widths=WIDTHS)


def timed_shapes(nodes: int) -> list[tuple[int, ...]]:
    """Trees whose calls feed the target 4, 8, 16, ... tokens, until trees of `nodes` are priced.

    Half of their nodes have a child, the most that one level can feed.
    """
    shapes, inner = [], 1
    while not shapes or len(shapes[-1]) < nodes:
        shapes.append((-1,) * (inner + 1) + tuple(range(inner)))
        inner = 2 * inner + 1
    return shapes


@dataclasses.dataclass(frozen=True)
class TreeOverhead:
    """Overhead of rounds beyond their calls and rejected drafts, as measured by probes."""

    level: float = 0.0  # target steps of a drafter's call
    node: float = 0.0  # target steps of a node
    end: float = 0.0  # rounds per token lost because texts end within drafts
    round_: float = 0.0  # target steps of a round of any draft

    def tokens(self, expected: float) -> float:
        """Tokens of a round, from its expected tokens in an endless text."""
        return 1.0 / (1.0 / expected + self.end * (1.0 - 1.0 / expected))


def end_loss(expected: float, measured: float) -> float:
    """`TreeOverhead.end` of rounds, from their expected and measured tokens."""
    if expected <= 1.0:
        return 0.0
    return max(1.0 / measured - 1.0 / expected, 0.0) / (1.0 - 1.0 / expected)


def fastest_trees(
    costs: Costs, acceptance: Any, model: str, nodes: int, target: str, overhead: TreeOverhead
) -> list[Fastest]:
    """The fastest branching tree for every doubling of nodes up to `nodes`.

    Uses the acceptance [D, W] of a wide tree and the cost of calls of `model` and the target.
    """
    step = costs.milliseconds(target, 1)
    opening = costs.price(Call(model, LAG, 1))
    calls = [opening, *(costs.milliseconds(model, fed) for fed in range(1, nodes // 2 + 1))]
    read = np.array([costs.milliseconds(target, count + 1) for count in range(nodes + 1)])
    drafting = np.maximum(np.array(calls) / step + overhead.level, 0.0)
    more = overhead.node * np.arange(nodes + 1) + overhead.round_
    reading = np.maximum(read / step + more, SHORTEST)
    best: dict[int, Fastest] = {}
    for tree in filter(
        branches, fastest_by_size(repeat_last_level(acceptance), nodes, drafting, reading)
    ):
        tokens = overhead.tokens(tree.tokens)
        tree = Fastest(tree.parents, tokens, tree.improvement * tokens / tree.tokens)
        doubling = (len(tree.parents) - 1).bit_length()
        if doubling not in best or tree.improvement > best[doubling].improvement:
            best[doubling] = tree
    return list(best.values())


def branches(tree: Fastest) -> bool:
    """Whether a tree is not a chain."""
    return max(compute_depths_and_ranks(tree.parents)[1], default=0) > 0


def label(parents: Sequence[int]) -> str:
    return f"tree of {len(parents)} nodes, {max(compute_depths_and_ranks(parents)[0]) + 1} levels"
