"""Trees of drafted tokens, given by the parents of their nodes (docs/methods/trees.md).

Node k is a child of node `parents[b, k]`; -1 is the pending token. Parents come before children.
The target reads the pending token at index 0 and the nodes at indices 1 ... K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def make_ancestor_mask(parents: Int[Array, "B K"]) -> Bool[Array, "B K+1 K+1"]:
    """Returns the tree attention mask [B, K+1, K+1] of parents [B, K].

    Each node attends to its ancestors and itself. Computed by repeated squaring.
    """
    size = parents.shape[1] + 1
    above = jnp.pad(parents + 1, ((0, 0), (1, 0)))  # of the pending token: itself
    reached = jax.nn.one_hot(above, size, dtype=bool) | jnp.eye(size, dtype=bool)
    for _ in range((size - 1).bit_length()):
        reached = jnp.einsum("bij,bjk->bik", reached, reached, preferred_element_type=jnp.int32) > 0
    return reached


def compute_depth(ancestors: Bool[Array, "B K1 K1"]) -> Int[Array, "B K1"]:
    """Computes the depth [B, K+1] of each node; the pending token has depth 0."""
    return jnp.sum(ancestors, axis=-1, dtype=jnp.int32) - 1


def append_tree(
    parents: Int[Array, "B K"], text: Int[Array, " B"], most: int
) -> Int[Array, "B {most}+K"]:
    """Appends a tree of parents [B, K] to a chain of `text` [B] tokens.

    Returns parents [B, most + K], for a call that feeds the chain of at most `most` tokens and then
    the nodes. The first token has no entry. Entries after the nodes continue as a chain.
    """
    place = jnp.arange(most + parents.shape[1])
    node = place - text[:, None]
    own = jnp.take_along_axis(parents, jnp.maximum(node, 0), axis=1, mode="clip")
    is_node = (node >= 0) & (node < parents.shape[1])
    return jnp.where(is_node, text[:, None] + own, place - 1)


def compute_depths_and_ranks(parents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Computes depths and sibling ranks of all nodes, both from 0.

    Raises:
      ValueError: if a node's parent is neither an earlier node nor -1.
    """
    depths: list[int] = []
    ranks: list[int] = []
    children: Counter[int] = Counter()
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(
                f"parents is {tuple(parents)}; the parent of node {node} must be an earlier node"
                " or -1"
            )
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        ranks.append(children[parent])
        children[parent] += 1
    return tuple(depths), tuple(ranks)


def build_regular_tree(
    widths: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Builds a regular tree; returns parents, depths and ranks level by level.

    The pending token has `widths[0]` children, each of which has `widths[1]`, ...
    """
    parents: list[int] = []
    level: Sequence[int] = (-1,)
    for width in widths:
        first = len(parents)
        parents += [parent for parent in level for _ in range(width)]
        level = range(first, len(parents))
    return tuple(parents), *compute_depths_and_ranks(parents)


def sort_by_level(
    parents: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Renumbers a tree level by level; returns parents, depths and ranks."""
    order: list[int] = []
    level = [-1]
    while level:
        level = [node for above in level for node, one in enumerate(parents) if one == above]
        order += level
    number = {-1: -1} | {node: place for place, node in enumerate(order)}
    renumbered = tuple(number[parents[node]] for node in order)
    return renumbered, *compute_depths_and_ranks(renumbered)
