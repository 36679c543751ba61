"""Trees of drafted tokens: what follows from the parents of their nodes (docs/methods/trees.md).

Node k hangs on node `parents[b, k]`, -1 for the pending token, parents before their children. What
the target is fed is the pending token and then the nodes: place 0 and places 1 ... K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp


def seen(parents: jax.Array) -> jax.Array:
    """Whether [B, K+1, K+1] each place sees another: its ancestors and itself, from parents [B, K].

    By squaring: a step up, then two, four, ...
    """
    places = parents.shape[1] + 1
    above = jnp.pad(parents + 1, ((0, 0), (1, 0)))  # of the pending token: itself
    reached = jax.nn.one_hot(above, places, dtype=bool) | jnp.eye(places, dtype=bool)
    for _ in range((places - 1).bit_length()):
        reached = jnp.einsum("bij,bjk->bik", reached, reached, preferred_element_type=jnp.int32) > 0
    return reached


def depth(seen: jax.Array) -> jax.Array:
    """How far [B, K+1] each place is behind the pending token."""
    return jnp.sum(seen, axis=-1, dtype=jnp.int32) - 1


def behind(parents: jax.Array, text: jax.Array, most: int) -> jax.Array:
    """Parents [B, most + K] where a tree of parents [B, K] hangs on the last of `text` [B] tokens.

    These are a chain of at most `most`, fed before the nodes in the same call; parents are those of
    all that is fed but the first. What lies beyond the nodes is a chain too.
    """
    place = jnp.arange(most + parents.shape[1])
    node = place - text[:, None]
    own = jnp.take_along_axis(parents, jnp.maximum(node, 0), axis=1, mode="clip")
    is_node = (node >= 0) & (node < parents.shape[1])
    return jnp.where(is_node, text[:, None] + own, place - 1)


def places(parents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of every node its depth and its rank among siblings, both from 0 on.

    Raises:
      ValueError: where a node hangs on none before it, nor on -1.
    """
    depths: list[int] = []
    ranks: list[int] = []
    children: Counter[int] = Counter()
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(
                f"parents is {tuple(parents)}; node {node} must hang on one before it, or on -1"
            )
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        ranks.append(children[parent])
        children[parent] += 1
    return tuple(depths), tuple(ranks)


def regular(widths: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Parents, depths and ranks among siblings of a tree level by level.

    Every node of a level has the same number of children: `widths[0]` hang on the pending token,
    `widths[1]` on each of these, ...
    """
    parents: list[int] = []
    level: Sequence[int] = (-1,)
    for width in widths:
        first = len(parents)
        parents += [parent for parent in level for _ in range(width)]
        level = range(first, len(parents))
    return tuple(parents), *places(parents)


def by_level(
    parents: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The same of any tree: its nodes in a new order, level by level, siblings side by side."""
    order: list[int] = []
    level = [-1]
    while level:
        level = [node for above in level for node, one in enumerate(parents) if one == above]
        order += level
    number = {-1: -1} | {node: place for place, node in enumerate(order)}
    renumbered = tuple(number[parents[node]] for node in order)
    return renumbered, *places(renumbered)
