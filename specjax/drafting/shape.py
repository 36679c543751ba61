"""Shapes of drafts: chains, trees of a fixed shape, and trees of the most probable nodes.

Cai et al., "Medusa" (2024) and Chen et al., "Sequoia" (2024) for fixed trees; Li et al., "EAGLE-2"
(2024) for those of the most probable nodes (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from specjax.contracts import fields, tree

GROWN = (4, 3, 2, 1, 1)
"""Default `widths` of the tree whose most probable nodes are verified."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A tree of G nodes, numbered level by level."""

    parents: tuple[int, ...]
    depths: tuple[int, ...]
    ranks: tuple[int, ...]  # among siblings

    @property
    def size(self) -> int:
        return len(self.parents)

    @property
    def most(self) -> int:
        """Most children of a node."""
        return max(self.ranks) + 1

    @functools.cached_property
    def inner(self) -> tuple[int, ...]:
        """The nodes with children: those that a model is fed, in their order."""
        return tuple(sorted(set(self.parents) - {-1}))

    @functools.cached_property
    def distributions(self) -> tuple[int, ...]:
        """Index of the distribution that each node is drawn from.

        0 is the one after the pending token, followed by those after the inner nodes.
        """
        number = {node: place for place, node in enumerate((-1, *self.inner))}
        return tuple(number[parent] for parent in self.parents)

    @property
    def slots(self) -> tuple[int, ...]:
        """Index of each node among the fed nodes, -1 for none."""
        number = {node: place for place, node in enumerate(self.inner)}
        return tuple(number.get(node, -1) for node in range(self.size))

    def level(self, depth: int) -> range:
        """The nodes of a level."""
        first = self.depths.index(depth)
        return range(first, first + self.depths.count(depth))

    def path(self, node: int) -> tuple[int, ...]:
        """The path from the root to the node."""
        return (*self.path(self.parents[node]), node) if node >= 0 else ()

    def list_fed_nodes(self, depth: int) -> tuple[int, ...]:
        """The nodes of a level that have children."""
        return tuple(node for node in self.inner if self.depths[node] == depth)

    @property
    def levels(self) -> int:
        return self.depths[-1] + 1

    @functools.cached_property
    def visible(self) -> np.ndarray:
        """Mask [G, G]: whether a node is the other node or one of its descendants."""
        visible = np.eye(self.size, dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                visible[node] |= visible[parent]
        return visible


@functools.lru_cache
def make_shape(widths: tuple[int, ...], parents: tuple[int, ...] = ()) -> Shape:
    """The tree with the given children per node and level, or the given parents."""
    return Shape(*(tree.build_regular_tree(widths) if widths else tree.sort_by_level(parents)))


def length_field() -> Any:
    """The config field of a chain's length."""
    return fields.draft_length(None, help="drafted tokens of a chain, at most")


def widths_field() -> Any:
    """The config field of a tree whose nodes of a level have equally many children."""
    return fields.listing(
        "a list of integers of at least 1",
        fields.is_positive,
        (),
        help="a tree: children of every node, level by level",
    )


def parents_field() -> Any:
    """The config field of any other tree."""
    return fields.listing(
        "a list of integers of at least -1",
        lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= -1,
        (),
        help="a tree: the parent of each node, -1 for the last token of the text",
    )


def nodes_field() -> Any:
    """The config field of the number of verified nodes of a tree."""
    return fields.integer(
        0,
        least=0,
        most=fields.MOST_DRAFTED,
        help=f"a tree of this many most probable nodes, of `widths` {list(GROWN)} unless given",
    )


def jetspec_width_field() -> Any:
    """The config field of JetSpec's order of a parallel drafter's nodes."""
    return fields.integer(
        0,
        least=0,
        most=fields.MOST_DRAFTED,
        help="with length and nodes: children of each expanded path, the most probable path first"
        " (JetSpec); 0: the most probable nodes",
    )


def copy_length_field() -> Any:
    """The config field of the copied tokens beside the most probable nodes."""
    return fields.integer(
        0,
        least=0,
        most=fields.MOST_DRAFTED,
        help="with nodes: tokens copied beside them from after the longest earlier match",
    )


def check_copy_length(length: int, nodes: int) -> None:
    """Refuses copies beside other drafts, and more tokens than are verified.

    Raises:
      ValueError: naming the fields.
    """
    if length and not nodes:
        raise ValueError(f"copy_length is {length}; it must be 0 without nodes")
    if length + nodes > fields.MOST_DRAFTED:
        raise ValueError(
            f"nodes is {nodes} and copy_length {length}; together they must be at most"
            f" {fields.MOST_DRAFTED:,}"
        )


def check_jetspec_width(width: int, length: int | None, nodes: int) -> None:
    """Refuses JetSpec's order of other drafts, and more nodes than its trees have.

    Raises:
      ValueError: naming the fields.
    """
    if not width:
        return
    if not (length and nodes):
        raise ValueError(f"jetspec_width is {width}; it must be 0 without length and nodes")
    most = 0
    for level in range(1, length + 1):
        most += width**level
        if most >= nodes:
            return
    raise ValueError(
        f"nodes is {nodes}; it must be at most {most}, as trees of length {length} and"
        f" jetspec_width {width} have"
    )


def check_shape(length: int | None, widths: tuple[int, ...], parents: tuple[int, ...]) -> None:
    """Refuses drafts of no shape, of two, or of too many nodes.

    Raises:
      ValueError: naming the fields.
    """
    given = {"length": length, "widths": widths, "parents": parents}
    given = {name: value for name, value in given.items() if value}
    if not given:
        raise ValueError(
            "length is missing; it must be an integer of at least 1 and at most"
            f" {fields.MOST_DRAFTED:,}, or widths, parents or nodes must say a tree"
        )
    if len(given) > 1:
        choices = " and ".join(f"{name} is {value}" for name, value in given.items())
        raise ValueError(f"{choices}; one of them must be given")
    tree.compute_depths_and_ranks(parents)
    levels = range(1, len(widths) + 1)
    size = sum(math.prod(widths[:level]) for level in levels) or len(parents)
    if size > fields.MOST_DRAFTED:
        raise ValueError(
            f"the tree has {size:,} nodes; it must have at most {fields.MOST_DRAFTED:,}"
        )


def check_children(most: int, given: str, vocabulary: int) -> None:
    """Refuses more children of a node than there are tokens; `given` is the field that sets them.

    Raises:
      ValueError: saying how many.
    """
    if most > vocabulary:
        raise ValueError(
            f"{given} gives a node {most} children; it has at most as many as"
            f" there are tokens, {vocabulary:,}"
        )
