"""Trees of drafted tokens, given by the parents of their nodes (docs/methods/trees.md).

Node k is a child of node `parents[b, k]`; -1 is the pending token. Parents come before children.
The target reads the pending token at place 0 and the nodes at places 1 ... K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def ancestor_mask(parents: Int[Array, "B K"]) -> Bool[Array, "B K+1 K+1"]:
    """Tree attention mask [B, K+1, K+1] of parents [B, K].

    Each place sees its ancestors and itself. Computed by repeated squaring.
    """
    places = parents.shape[1] + 1
    above = jnp.pad(parents + 1, ((0, 0), (1, 0)))  # of the pending token: itself
    reached = jax.nn.one_hot(above, places, dtype=bool) | jnp.eye(places, dtype=bool)
    for _ in range((places - 1).bit_length()):
        reached = jnp.einsum("bij,bjk->bik", reached, reached, preferred_element_type=jnp.int32) > 0
    return reached


def depth(ancestors: Bool[Array, "B K1 K1"]) -> Int[Array, "B K1"]:
    """Depth [B, K+1] of each place; the pending token has 0."""
    return jnp.sum(ancestors, axis=-1, dtype=jnp.int32) - 1


def append_tree(
    parents: Int[Array, "B K"], text: Int[Array, " B"], most: int
) -> Int[Array, "B {most}+K"]:
    """Parents [B, most + K] of a chain of `text` [B] tokens followed by the tree of parents [B, K].

    One call feeds the chain of at most `most` tokens and then the nodes. The first token has no
    entry. Entries after the nodes continue as a chain.
    """
    place = jnp.arange(most + parents.shape[1])
    node = place - text[:, None]
    own = jnp.take_along_axis(parents, jnp.maximum(node, 0), axis=1, mode="clip")
    is_node = (node >= 0) & (node < parents.shape[1])
    return jnp.where(is_node, text[:, None] + own, place - 1)


def depths_and_ranks(parents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Depths and ranks among siblings of all nodes, both from 0.

    Raises:
      ValueError: when a node's parent is neither an earlier node nor -1.
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
    """Parents, depths and ranks of a regular tree, level by level.

    The pending token has `widths[0]` children, each of these `widths[1]`, ...
    """
    parents: list[int] = []
    level: Sequence[int] = (-1,)
    for width in widths:
        first = len(parents)
        parents += [parent for parent in level for _ in range(width)]
        level = range(first, len(parents))
    return tuple(parents), *depths_and_ranks(parents)


def sort_by_level(
    parents: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Parents, depths and ranks of any tree, renumbered level by level."""
    order: list[int] = []
    level = [-1]
    while level:
        level = [node for above in level for node, one in enumerate(parents) if one == above]
        order += level
    number = {-1: -1} | {node: place for place, node in enumerate(order)}
    renumbered = tuple(number[parents[node]] for node in order)
    return renumbered, *depths_and_ranks(renumbered)
