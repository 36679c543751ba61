"""Trees beside the chains of a search: a wide one is decoded, the fastest shapes follow.

Acceptance by depth and rank (`metrics.trees`), the drafter's calls by the nodes that they feed and
the target's by the nodes that it reads give the speedup of every shape (`theory.trees`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.contracts.spec import Call
from specjax.contracts.tree import depths_and_ranks
from specjax.drafting.proposer import CHAIN_FIELDS, LAG
from specjax.experiments.recipes.trees import WIDTHS, deepened
from specjax.measuring.cost import SHORTEST, Costs
from specjax.runtime.errors import UserError
from specjax.theory.trees import Fastest, fastest_by_size

MOST = 128
"""Nodes of a tree at most: the search tries every number of nodes and of levels."""

FEWEST = 2
"""Nodes of a tree that branches."""

_OF_CHAINS = ("drafter", "length", "reader", *CHAIN_FIELDS)


def check_trees(nodes: int, objective: str, spec: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Refuses a search for trees beside what is no chain of a model, or is not found by time.

    Raises:
      UserError: saying why.
    """
    if not nodes:
        return
    said = f"config.tree_nodes is {nodes}; it must be"
    if not FEWEST <= nodes <= MOST:
        raise UserError(f"{said} 0 (no trees) or from {FEWEST} to {MOST}")
    if spec["drafter"] != "neural" or tuple(fields) != ("length",):
        raise UserError(
            f"{said} 0 (no trees): trees are searched beside the draft lengths of a strategy with"
            " the drafter 'neural', and beside no other field"
        )
    if objective != "time":
        raise UserError(f"{said} 0 (no trees) with objective {objective!r}: a price knows no width")


def tree_spec(spec: Mapping[str, Any], **shape: Any) -> dict[str, Any]:
    """The fields of a strategy that drafts trees of a shape as `spec` drafts chains.

    What block verification is for chains, traversal is for trees.
    """
    shared = {field: value for field, value in spec.items() if field not in _OF_CHAINS}
    if shared.get("rule") == "block":
        shared["rule"] = "traversal"
    return {"drafter": "neural", **shape, **shared}


def wide_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    return tree_spec(spec, widths=WIDTHS)


def timed_shapes(nodes: int) -> list[tuple[int, ...]]:
    """Trees whose calls feed the target 4, 8, 16, ... tokens, until trees of `nodes` are priced.

    Half of their nodes have a child, which is the most that a level can be fed.
    """
    shapes, inner = [], 1
    while not shapes or len(shapes[-1]) < nodes:
        shapes.append((-1,) * (inner + 1) + tuple(range(inner)))
        inner = 2 * inner + 1
    return shapes


@dataclasses.dataclass(frozen=True)
class TreeOverhead:
    """What rounds lose beside the calls and the drafts that fall, as probes have shown it."""

    level: float = 0.0  # target steps of a drafter's call
    node: float = 0.0  # target steps of a node
    end: float = 0.0  # rounds of a token, of drafts that never end: texts end within drafts
    round_: float = 0.0  # target steps of a round, whatever it drafts

    def tokens(self, expected: float) -> float:
        """Tokens of a round that is expected to give so many where texts go on for ever."""
        return 1.0 / (1.0 / expected + self.end * (1.0 - 1.0 / expected))


def end_loss(expected: float, measured: float) -> float:
    """`TreeOverhead.end` of rounds that were expected to give so many tokens and gave others."""
    if expected <= 1.0:
        return 0.0
    return max(1.0 / measured - 1.0 / expected, 0.0) / (1.0 - 1.0 / expected)


def fastest_trees(
    costs: Costs, acceptance: Any, model: str, nodes: int, target: str, beside: TreeOverhead
) -> list[Fastest]:
    """Of every doubling of nodes up to `nodes` the fastest tree that branches.

    By the acceptance [D, W] of a wide tree and what calls of `model` and the target cost.
    """
    step = costs.milliseconds(target, 1)
    opening = costs.price(Call(model, LAG, 1))
    calls = [opening, *(costs.milliseconds(model, fed) for fed in range(1, nodes // 2 + 1))]
    read = np.array([costs.milliseconds(target, count + 1) for count in range(nodes + 1)])
    drafting = np.maximum(np.array(calls) / step + beside.level, 0.0)
    more = beside.node * np.arange(nodes + 1) + beside.round_
    reading = np.maximum(read / step + more, SHORTEST)
    best: dict[int, Fastest] = {}
    for tree in filter(branches, fastest_by_size(deepened(acceptance), nodes, drafting, reading)):
        tokens = beside.tokens(tree.tokens)
        tree = Fastest(tree.parents, tokens, tree.improvement * tokens / tree.tokens)
        doubling = (len(tree.parents) - 1).bit_length()
        if doubling not in best or tree.improvement > best[doubling].improvement:
            best[doubling] = tree
    return list(best.values())


def branches(tree: Fastest) -> bool:
    """Whether it is no chain."""
    return max(depths_and_ranks(tree.parents)[1], default=0) > 0


def label(parents: Sequence[int]) -> str:
    return f"tree of {len(parents)} nodes, {max(depths_and_ranks(parents)[0]) + 1} levels"
