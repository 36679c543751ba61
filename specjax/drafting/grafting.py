"""A copied continuation beside the most probable nodes of a tree, verified with them.

Where a text repeats itself, a copy may be longer than any path of a model's tree, and it takes no
call of its own. Oliaro et al., "SuffixDecoding" (2024), choose one of the two for each round; here
both are in one tree (docs/methods/trees.md). B batch rows, N nodes, K copied tokens.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.drafting.copying import (
    best_match,
    copy_continuations,
    match_sizes,
    pattern_length,
    text,
)
from specjax.drafting.growing import select_nodes

LONGEST = 16
"""Most tokens of a match that are compared."""

COPY = "copy"
"""The writer of copied nodes."""


def graft_copy(draft: Draft, context: Context, count: int) -> Draft:
    """The tree of N certain nodes, with up to `count` nodes after the longest earlier match.

    The copy follows the tree as far as they agree, and is a chain below the last common node.
    """
    joined, length = text(context, spare=0)
    sizes = match_sizes(joined, length, pattern_length(context), LONGEST)
    begin, size = best_match(sizes)
    copied = copy_continuations(joined, begin[:, None], length, count)[:, 0]
    common, last = follow_tree(draft, copied)
    step = jnp.arange(count)
    is_new = (step >= common[:, None]) & ((size > 0) & context.active)[:, None]
    above = jnp.where(step == common[:, None], last[:, None], draft.width + step - 1)
    there = jnp.arange(draft.width) < draft.length[:, None]
    alive = jnp.concatenate([there, is_new], axis=1)
    whole = Draft.chain(
        jnp.concatenate([draft.tokens, copied], axis=1),
        jnp.sum(alive, axis=1, dtype=jnp.int32),
        drafted_by=jnp.pad(draft.drafted_by, ((0, 0), (0, count)), constant_values=1),
    )
    slots = draft.slots
    if slots is not None:
        slots = jnp.pad(slots, ((0, 0), (0, count)), constant_values=-1)
    whole = whole.replace(parents=jnp.concatenate([draft.tree_parents, above], axis=1), slots=slots)
    return select_nodes(whole, jnp.argsort(~alive, axis=1, stable=True))


def follow_tree(draft: Draft, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many of the tokens [B, K] are a path of the tree [B], and its last node, -1 for none."""
    node = jnp.arange(draft.width)

    def step(
        carry: tuple[jax.Array, jax.Array, jax.Array], token: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        count, last, going = carry
        child = (draft.tree_parents == last[:, None]) & (draft.tokens == token[:, None])
        child &= (node < draft.length[:, None]) & going[:, None]
        going = jnp.any(child, axis=1)
        last = jnp.where(going, jnp.argmax(child, axis=1), last)
        return (count + going, last, going), None

    rows = draft.length.shape
    start = jnp.zeros(rows, jnp.int32), jnp.full(rows, -1), jnp.ones(rows, bool)
    (count, last, _), _ = jax.lax.scan(step, start, tokens.T)
    return count, last
