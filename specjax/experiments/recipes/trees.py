"""Trees of the best shapes compared with chains, for `configs/trees.py`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from specjax.drafting.shape import GROWN
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path
from specjax.runtime.json_files import read_json
from specjax.theory.trees import best

WIDE = "wide"
"""The strategy that measures acceptance, and the config argument that selects it."""

WIDTHS = (4, 4, 3, 2)
"""Its children, level by level."""

LENGTHS, SIZES = (3, 5, 8), (4, 8, 16, 32)
"""Tokens of chains, nodes of trees."""

DEEPEST = 8
"""Levels at most, as many as the longest chain has."""

ACCEPTANCE = (
    (0.6455, 0.1002, 0.0636, 0.0270),
    (0.7410, 0.0791, 0.0360, 0.0216),
    (0.6727, 0.1171, 0.0511, 0.0000),
    (0.7165, 0.1418, 0.0000, 0.0000),
)
"""Greedy, by depth and rank among siblings, of the translation pair in docs/lab_book/trees.md."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A drafter of chains and trees."""

    drafter: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    most: int = DEEPEST  # tokens of a path
    shares: bool = False  # whether nodes of a level share draws

    def strategy(self, heat: float, **shape: Any) -> dict[str, Any]:
        """The strategy that drafts this shape."""
        drawn = {"temperature": heat} if heat else {}
        return {"drafter": self.drafter, **self.fields, **shape, **drawn}


HEADS = 4
"""Heads that `configs/training/medusa.py` trains."""

KINDS = {
    "neural": Kind("neural", {"model": "drafter"}),
    "eagle": Kind("eagle", {"model": "drafter"}),
    "medusa": Kind("medusa", {"model": "target"}, HEADS, shares=True),
    "hydra": Kind("hydra", {}, HEADS),
}
"""Small models, a layer on the target's states, and two kinds of heads on them."""


def chains(kind: Kind, heat: float) -> dict[str, Any]:
    """Drafts without branches."""
    lengths = sorted({min(length, kind.most) for length in LENGTHS})
    return {f"chain_{length}": kind.strategy(heat, length=length) for length in lengths}


def wide(kind: Kind, heat: float) -> dict[str, Any]:
    """A wide tree that contains the best trees."""
    return {WIDE: kind.strategy(heat, widths=WIDTHS)}


def best_trees(kind: Kind, heat: float, acceptance: Any) -> dict[str, Any]:
    """The best trees of some sizes by acceptance [D, W], and equally large top-N trees.

    With sampling, one of them is also verified from its leaves up, if its nodes are drawn
    independently.
    """
    table = repeat_last_level(acceptance, kind.most)
    trees = {f"tree_{nodes}": kind.strategy(heat, parents=best(table, nodes)) for nodes in SIZES}
    leaves_first = {"tree_16_traversal": trees["tree_16"] | {"rule": "traversal"}}
    top_nodes = {
        f"likeliest_{nodes}": kind.strategy(heat, widths=GROWN[: kind.most], nodes=nodes)
        for nodes in (8, 16)
    }
    return {**(leaves_first if heat and not kind.shares else {}), **trees, **top_nodes}


def repeat_last_level(acceptance: Any, most: int = DEEPEST) -> np.ndarray:
    """The table [D, W] with its last measured level repeated for deeper levels."""
    table = np.asarray(acceptance, np.float64)[:most]
    return np.concatenate([table, np.repeat(table[-1:], max(most - len(table), 0), axis=0)])


def read_acceptance(file: str) -> Any:
    """The acceptance by depth and rank of `wide` in the results.json of a run.

    Raises:
      UserError: when there is none.
    """
    if not os.path.isfile(expand_path(file)):
        raise UserError(
            f"{file!r} is no file; it must be {WIDE!r}, the results.json of such a run, or one"
            f" of: {', '.join(KINDS)}"
        )
    entries = read_json(expand_path(file)).get("strategies")
    entry = entries.get(WIDE) if isinstance(entries, dict) else None
    table = entry.get("acceptance_by_rank") if isinstance(entry, dict) else None
    try:
        rate = (table or {})["rate"]
        some = best(rate, 1)
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{file!r} has no acceptance by rank of {WIDE!r}; configs/trees.py:0,{WIDE} measures it"
        ) from None
    if not some:
        raise UserError(f"no node of {WIDE!r} was accepted in {file!r}; there is no best tree")
    return rate
