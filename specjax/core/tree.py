"""Trees of drafted tokens: what follows from the parents of their nodes (docs/methods/trees.md).

Node k hangs on node `parents[b, k]`, -1 for the pending token, parents before their children. What
the target is fed is the pending token and then the nodes: place 0 and places 1 ... K.
"""

from __future__ import annotations

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


def regular(widths: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Parents, depths and ranks among siblings of a tree level by level.

    Every node of a level has the same number of children: `widths[0]` hang on the pending token,
    `widths[1]` on each of these, ... Depths begin with 0.
    """
    parents, depths, ranks = [], [], []
    level = [-1]
    for deep, width in enumerate(widths):
        first = len(parents)
        for parent in level:
            parents += [parent] * width
            depths += [deep] * width
            ranks += range(width)
        level = list(range(first, len(parents)))
    return tuple(parents), tuple(depths), tuple(ranks)


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
    depths: list[int] = []
    for parent in renumbered:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    ranks = tuple(place - renumbered.index(parent) for place, parent in enumerate(renumbered))
    return renumbered, tuple(depths), ranks
