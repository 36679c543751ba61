"""Lossless verification of trees: from the pending token to the node that stands, and on.

Miao et al., "SpecInfer" (2024), Algorithm 2, for any distributions that children were drawn from
(docs/methods/trees.md).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from specjax.contracts import tree
from specjax.contracts.distribution import NO_RESIDUAL, pick
from specjax.contracts.draft import Draft
from specjax.contracts.rule import Verdict
from specjax.sampling import argmax, draw

Walk = tuple[Int[Array, " B"], Int[Array, " B"], Int[Array, "B K"]]
"""The node that stands last, -1 for the pending token; how many stand; their numbers."""


def greedy_tree(draft: Draft, logits: Float[Array, "B K1 V"]) -> Verdict:
    """Follows the argmax of logits [B, K+1, V] while a child has it."""
    best = argmax(logits)
    wanted = jnp.take_along_axis(best, draft.tree_parents + 1, axis=1)
    agrees = (draft.tokens == wanted) & (jnp.arange(draft.width) < draft.length[:, None])
    above = tree.ancestor_mask(draft.tree_parents)[:, 1:, 1:]
    stands = ~jnp.any(above & ~agrees[:, None], axis=-1)
    depth = jnp.where(stands, jnp.sum(above, axis=-1, dtype=jnp.int32), 0)
    last = jnp.where(jnp.any(stands, axis=1), jnp.argmax(depth, axis=1), -1)
    return verdict_at(draft, last, pick(best, last + 1))


def sampled_tree(
    draft: Draft, p: Float[Array, "B K1 V"], accept: Float[Array, "B K"], keys: Key[Array, " B"]
) -> Verdict:
    """Tries the children of a node in their order against p [B, K+1, V], which shrinks by each.

    `accept` are uniform numbers [B, K], a node's own each. A child stands iff
    `u * q(x) < p(x)`; where it falls, p becomes norm([p - q]_+) for the next child, and at last for
    the token that is drawn. q is what the child was drawn from given its earlier siblings.
    """
    q_drafted = draft.distribution.of(draft.tokens)

    def visit(node: jax.Array, carry: tuple[Walk, jax.Array]) -> tuple[Walk, jax.Array]:
        walk, probabilities = carry
        token = draft.tokens[:, node]
        p_drafted = jnp.take_along_axis(probabilities, token[:, None], axis=1, mode="clip")[:, 0]
        tried = _is_tried(draft, walk, node)
        stands = tried & (accept[:, node] * q_drafted[:, node] < p_drafted)
        rest = draft.distribution.residual(probabilities, jnp.broadcast_to(node, token.shape))
        total = jnp.sum(rest, axis=-1, keepdims=True)
        rest = jnp.where(total > NO_RESIDUAL, rest / jnp.maximum(total, NO_RESIDUAL), probabilities)
        fallen = jnp.where((tried & ~stands)[:, None], rest, probabilities)
        return _step(walk, node, stands), jnp.where(stands[:, None], p[:, node + 1], fallen)

    start = jnp.full_like(draft.length, -1), jnp.zeros_like(draft.length)
    walk = *start, jnp.zeros_like(draft.tokens)
    (_, accepted, path), distribution = jax.lax.fori_loop(0, draft.width, visit, (walk, p[:, 0]))
    return _verdict(draft, accepted, path, draw(keys, distribution))


def _is_tried(draft: Draft, walk: Walk, node: Int[Array, ""]) -> Bool[Array, " B"]:
    return (draft.tree_parents[:, node] == walk[0]) & (node < draft.length)


def _step(walk: Walk, node: Int[Array, ""], stands: Bool[Array, " B"]) -> Walk:
    at, count, path = walk
    here = stands[:, None] & (jnp.arange(path.shape[1]) == count[:, None])
    return jnp.where(stands, node, at), count + stands, jnp.where(here, node, path)


def verdict_at(draft: Draft, last: Int[Array, " B"], own: Int[Array, " B"]) -> Verdict:
    """The path to the node `last` [B], -1 for none, then the token `own` [B]."""
    stands = pick(tree.ancestor_mask(draft.tree_parents)[:, :, 1:], last + 1)
    # Parents come before children: ancestors in their order are the path.
    path = jnp.argsort(~stands, axis=1, stable=True).astype(jnp.int32)
    return _verdict(draft, jnp.sum(stands, axis=1, dtype=jnp.int32), path, own)


def _verdict(
    draft: Draft, accepted: Int[Array, " B"], path: Int[Array, "B K"], own: Int[Array, " B"]
) -> Verdict:
    drafted = jnp.take_along_axis(draft.tokens, path, axis=1)
    drafted = jnp.pad(drafted, ((0, 0), (0, 1)))
    stands = jnp.arange(draft.width + 1) < accepted[:, None]
    tokens = jnp.where(stands, drafted, own[:, None])
    return Verdict(tokens, accepted + 1, accepted, accepted.astype(jnp.float32), path)
