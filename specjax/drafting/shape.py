"""Trees whose shape is known beforehand, and what drafters of them share.

Cai et al., "Medusa" (2024) and Chen et al., "Sequoia" (2024) (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from specjax.core import fields, tree
from specjax.core.drafter import Drafter
from specjax.core.reader import Reader
from specjax.core.spec import Spec
from specjax.readers.tree import Tree


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
    def laws(self) -> tuple[int, ...]:
        """Of each node the one it hangs on: 0 the pending token, then the inner nodes."""
        number = {node: place for place, node in enumerate((-1, *self.inner))}
        return tuple(number[parent] for parent in self.parents)

    @property
    def slots(self) -> tuple[int, ...]:
        """Of each node its place among those that are fed, -1 for none."""
        number = {node: place for place, node in enumerate(self.inner)}
        return tuple(number.get(node, -1) for node in range(self.size))

    def level(self, depth: int) -> range:
        """The nodes of a level."""
        first = self.depths.index(depth)
        return range(first, first + self.depths.count(depth))

    def path(self, node: int) -> tuple[int, ...]:
        """The node and all that it hangs on, the first of them first."""
        return (*self.path(self.parents[node]), node) if node >= 0 else ()

    def fed(self, depth: int) -> tuple[int, ...]:
        """Of them those with children."""
        return tuple(node for node in self.inner if self.depths[node] == depth)

    @property
    def levels(self) -> int:
        return self.depths[-1] + 1

    @functools.cached_property
    def seen(self) -> np.ndarray:
        """Whether [G, G] a node is the other or hangs on it."""
        seen = np.eye(self.size, dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen


@functools.lru_cache
def shape_of(widths: tuple[int, ...], parents: tuple[int, ...]) -> Shape:
    """The tree of so many children per node and level, or of these parents."""
    return Shape(*(tree.regular(widths) if widths else tree.by_level(parents)))


@dataclasses.dataclass(frozen=True)
class Shaped(Drafter):
    """A drafter of trees of one shape."""

    widths: tuple[int, ...] = fields.listing(
        "a list of integers of at least 1",
        fields.is_positive,
        (),
        help="children of every node, level by level; or give `parents`",
    )
    parents: tuple[int, ...] = fields.listing(
        "a list of integers of at least -1",
        lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= -1,
        (),
        help="the parent of each node, -1 for the last token of the text",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.widths) == bool(self.parents):
            raise ValueError(
                f"widths is {self.widths} and parents is {self.parents}; one of them must be given"
            )
        tree.places(self.parents)
        levels = range(1, len(self.widths) + 1)
        size = sum(math.prod(self.widths[:level]) for level in levels) or len(self.parents)
        if size > fields.MOST_DRAFTED:
            raise ValueError(
                f"the tree has {size:,} nodes; it must have at most {fields.MOST_DRAFTED:,}"
            )

    @property
    def shape(self) -> Shape:
        """The tree that is grown."""
        return shape_of(self.widths, self.parents)

    @property
    def given(self) -> str:
        """The field that says the shape."""
        return "widths" if self.widths else "parents"

    @property
    def reader(self) -> Reader:
        return Tree()

    def _tree_spec(self, **given: Any) -> Spec:
        """What all drafts of the shape have in common, and what is given."""
        shape = self.shape
        known = {"width": shape.size, "parents": shape.parents, "levels": shape.levels}
        return Spec(**{**known, "always": True, "trees": True, **given})

    def check_children(self, vocabulary: int) -> None:
        """Refuses more children than there are tokens.

        Raises:
          ValueError: saying how many.
        """
        if self.shape.most > vocabulary:
            raise ValueError(
                f"{self.given} gives a node {self.shape.most} children; it has at most as many as"
                f" there are tokens, {vocabulary:,}"
            )
