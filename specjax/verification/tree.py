"""Lossless verification of trees, from the root to the leaves.

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
"""The last accepted node, -1 for the pending token; the number of accepted nodes; the nodes."""


def match_tree_greedily(draft: Draft, logits: Float[Array, "B K1 V"]) -> Verdict:
    """Accepts the path of nodes that equal the argmax of logits [B, K+1, V]."""
    best = argmax(logits)
    wanted = jnp.take_along_axis(best, draft.tree_parents + 1, axis=1)
    agrees = (draft.tokens == wanted) & (jnp.arange(draft.width) < draft.length[:, None])
    ancestors = tree.make_ancestor_mask(draft.tree_parents)[:, 1:, 1:]
    accepted = ~jnp.any(ancestors & ~agrees[:, None], axis=-1)
    depth = jnp.where(accepted, jnp.sum(ancestors, axis=-1, dtype=jnp.int32), 0)
    last = jnp.where(jnp.any(accepted, axis=1), jnp.argmax(depth, axis=1), -1)
    return make_tree_verdict(draft, last, pick(best, last + 1))


def match_tree_by_sampling(
    draft: Draft, p: Float[Array, "B K1 V"], accept: Float[Array, "B K"], keys: Key[Array, " B"]
) -> Verdict:
    """Verifies a tree against p [B, K+1, V] by speculative sampling of siblings in order.

    `accept` are uniform numbers u [B, K], one for each node. A child is accepted iff
    `u * q(x) < p(x)`; after a rejection p becomes norm([p - q]_+) for the next sibling, and finally
    for the drawn token. q is the child's distribution given its earlier siblings.
    """
    q_drafted = draft.distribution.prob(draft.tokens)

    def visit(node: jax.Array, carry: tuple[Walk, jax.Array]) -> tuple[Walk, jax.Array]:
        walk, probabilities = carry
        token = draft.tokens[:, node]
        p_drafted = jnp.take_along_axis(probabilities, token[:, None], axis=1, mode="clip")[:, 0]
        tried = _is_tried(draft, walk, node)
        accepted = tried & (accept[:, node] * q_drafted[:, node] < p_drafted)
        rest = draft.distribution.residual(probabilities, jnp.broadcast_to(node, token.shape))
        total = jnp.sum(rest, axis=-1, keepdims=True)
        rest = jnp.where(total > NO_RESIDUAL, rest / jnp.maximum(total, NO_RESIDUAL), probabilities)
        rejected = jnp.where((tried & ~accepted)[:, None], rest, probabilities)
        return _step(walk, node, accepted), jnp.where(accepted[:, None], p[:, node + 1], rejected)

    start = jnp.full_like(draft.length, -1), jnp.zeros_like(draft.length)
    walk = *start, jnp.zeros_like(draft.tokens)
    (_, accepted, path), distribution = jax.lax.fori_loop(0, draft.width, visit, (walk, p[:, 0]))
    return _build_verdict(draft, accepted, path, draw(keys, distribution))


def _is_tried(draft: Draft, walk: Walk, node: Int[Array, ""]) -> Bool[Array, " B"]:
    return (draft.tree_parents[:, node] == walk[0]) & (node < draft.length)


def _step(walk: Walk, node: Int[Array, ""], accepted: Bool[Array, " B"]) -> Walk:
    at, count, path = walk
    here = accepted[:, None] & (jnp.arange(path.shape[1]) == count[:, None])
    return jnp.where(accepted, node, at), count + accepted, jnp.where(here, node, path)


def make_tree_verdict(draft: Draft, last: Int[Array, " B"], own: Int[Array, " B"]) -> Verdict:
    """Builds the verdict of the path to node `last` [B], -1 for none, and token `own` [B]."""
    is_accepted = pick(tree.make_ancestor_mask(draft.tree_parents)[:, :, 1:], last + 1)
    # Parents come before children: ancestors in their order are the path.
    path = jnp.argsort(~is_accepted, axis=1, stable=True).astype(jnp.int32)
    return _build_verdict(draft, jnp.sum(is_accepted, axis=1, dtype=jnp.int32), path, own)


def _build_verdict(
    draft: Draft, accepted: Int[Array, " B"], path: Int[Array, "B K"], own: Int[Array, " B"]
) -> Verdict:
    drafted = jnp.take_along_axis(draft.tokens, path, axis=1)
    drafted = jnp.pad(drafted, ((0, 0), (0, 1)))
    is_accepted = jnp.arange(draft.width + 1) < accepted[:, None]
    tokens = jnp.where(is_accepted, drafted, own[:, None])
    return Verdict(tokens, accepted + 1, accepted, accepted.astype(jnp.float32), path)
