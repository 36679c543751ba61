"""Trees of the best shapes beside chains, for `configs/trees.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from specjax.checkpoints.config_json import read_json
from specjax.errors import UserError
from specjax.experiments.config.defaults import neural
from specjax.theory.trees import best

WIDE = "wide"
"""The strategy that measures acceptance, and the word behind the colon that asks for it."""

WIDTHS = (4, 4, 3, 2)
"""Its children, level by level."""

SIZES = (4, 8, 16, 32)
"""Nodes."""

DEEPEST = 8
"""Levels at most, as many as the longest chain has."""

ACCEPTANCE = (
    (0.6455, 0.1002, 0.0636, 0.0270),
    (0.7410, 0.0791, 0.0360, 0.0216),
    (0.6727, 0.1171, 0.0511, 0.0000),
    (0.7165, 0.1418, 0.0000, 0.0000),
)
"""Greedy, by depth and rank among siblings, of the translation pair in docs/lab_book/trees.md."""


def chains(heat: float) -> dict[str, Any]:
    """Drafts without branches."""
    return {f"chain_{length}": neural("drafter", length, heat) for length in (3, 5, 8)}


def wide(heat: float) -> dict[str, Any]:
    """A tree wide enough for the best ones to be found in it."""
    return {WIDE: tree(heat, widths=WIDTHS)}


def best_trees(heat: float, acceptance: Any) -> dict[str, Any]:
    """The best trees of some sizes by acceptance [D, W], and as many of the likeliest nodes.

    Where tokens are drawn, one of them judged from its leaves on as well.
    """
    table = deepened(acceptance)
    leaves_first = {"tree_16_traversal": tree(heat, parents=best(table, 16), rule="traversal")}
    return {
        **(leaves_first if heat else {}),
        **{f"tree_{nodes}": tree(heat, parents=best(table, nodes)) for nodes in SIZES},
        **{
            f"likeliest_{nodes}": tree(heat, widths=(4, 3, 2, 1, 1), nodes=nodes)
            for nodes in (8, 16)
        },
    }


def tree(heat: float, **shape: Any) -> dict[str, Any]:
    """A strategy that drafts trees of a shape."""
    drawn = {"temperature": heat} if heat else {}
    return {"drafter": "neural_tree", "model": "drafter", **shape, **drawn}


def deepened(acceptance: Any) -> np.ndarray:
    """The table [D, W] as if levels below the last one that was measured were like it."""
    table = np.asarray(acceptance, np.float64)
    return np.concatenate([table, np.repeat(table[-1:], max(DEEPEST - len(table), 0), axis=0)])


def measured(file: str) -> Any:
    """The acceptance by depth and rank of `wide` in the results.json of a run.

    Raises:
      UserError: when there is none.
    """
    if not Path(file).expanduser().is_file():
        raise UserError(
            f"{file!r} is no file; it must be {WIDE!r}, or the results.json of such a run"
        )
    entries = read_json(Path(file).expanduser()).get("strategies")
    entry = entries.get(WIDE) if isinstance(entries, dict) else None
    table = entry.get("acceptance_by_rank") if isinstance(entry, dict) else None
    try:
        some = best(table["rate"], 1)
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{file!r} has no acceptance by rank of {WIDE!r}; configs/trees.py:0,{WIDE} measures it"
        ) from None
    if not some:
        raise UserError(f"no node of {WIDE!r} stood in {file!r}; there is no best tree")
    return table["rate"]
