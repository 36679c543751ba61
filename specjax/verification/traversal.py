"""Traversal verification of trees, from the leaves to the root (docs/methods/trees.md).

Weng et al., "Traversal Verification for Speculative Tree Decoding" (2025). It extends block
verification to siblings, and equals it on a chain.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int32, Key

from specjax.contracts.context import Options
from specjax.contracts.distribution import NO_RESIDUAL, pick, pick_tokens
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict
from specjax.sampling import adjust, draw
from specjax.verification.block import BlockVerification
from specjax.verification.speculative_sampling import draw_uniform, split_keys
from specjax.verification.tree import make_tree_verdict, match_tree_greedily

NONE = -1
"""No node: only the pending token."""


@RULES.register("traversal")
@dataclasses.dataclass(frozen=True)
class TraversalVerification(Rule):
    """Lossless verification of a tree that tests descendants before ancestors.

    Nodes must have been drawn independently, because the descendants of a node are tested before
    its siblings.
    """

    lossless = True
    trees = True
    apart = True

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if draft.parents is None:
            return BlockVerification().judge(draft, reading, options, keys)
        if options.sampling.greedy:
            return match_tree_greedily(draft, reading.logits)
        return verify_traversal(draft, adjust(reading.logits, options.sampling), keys)


def verify_traversal(draft: Draft, p: Float[Array, "B K1 V"], keys: Key[Array, " B"]) -> Verdict:
    """Verifies a tree against p [B, K+1, V], the target's distributions after its nodes."""
    accept_keys, draw_keys = split_keys(keys)
    weights, chances = compute_acceptance_probs(draft, p)
    last = find_first_accepted(draft, draw_uniform(accept_keys, draft.width) < chances[:, 1:])
    return make_tree_verdict(
        draft, last, draw(draw_keys, compute_residual(draft, p, weights, last + 1))
    )


def compute_acceptance_probs(
    draft: Draft, p: Float[Array, "B K1 V"]
) -> tuple[Float[Array, "B K1"], Float[Array, "B K1"]]:
    """Computes weights [B, K+1] of all nodes and their acceptance probabilities [B, K+1].

    A probability is conditional on the rejection of all descendants and of all nodes tested before.
    Index 0 is the pending token, which is always accepted. A node starts with the weight
    w = min(1, w_parent p_parent(x) / q(x)); `_descend` reduces it for rejected children.
    """
    children = _Children.from_draft(draft)

    def visit(place: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, chances = carry
        at = jnp.broadcast_to(place, draft.length.shape)
        left, _, weights = _descend(draft, children, p, weights, at)
        return weights, chances.at[:, place].set(left)

    weights = jnp.zeros(p.shape[:2], p.dtype).at[:, 0].set(1.0)
    return jax.lax.fori_loop(0, draft.width + 1, visit, (weights, weights))


def compute_residual(
    draft: Draft, p: Float[Array, "B K1 V"], weights: Float[Array, "B K1"], place: Int[Array, " B"]
) -> Float[Array, "B V"]:
    """Weights [B, V] of the token after node `place` [B], whose descendants were rejected.

    As in `lossless`, a residual of rounding errors is replaced by p.
    """
    chance, rest, _ = _descend(draft, _Children.from_draft(draft), p, weights, place)
    return jnp.where((chance > NO_RESIDUAL)[:, None], rest, pick(p, place))


class _Children(struct.PyTreeNode):
    """Nodes sorted by parent, siblings in order."""

    nodes: Int32[Array, "B K"]
    begin: Int32[Array, "B K+1"]  # index of each parent's first child
    count: Int32[Array, "B K+1"]

    @classmethod
    def from_draft(cls, draft: Draft) -> _Children:
        there = jnp.arange(draft.width) < draft.length[:, None]
        parent = jnp.where(there, draft.tree_parents + 1, draft.width + 1)
        is_child = parent[:, None] == jnp.arange(draft.width + 1)[:, None]
        count = jnp.sum(is_child, axis=-1, dtype=jnp.int32)
        nodes = jnp.argsort(parent, axis=1, stable=True)
        return cls(nodes, jnp.cumsum(count, axis=1) - count, count)

    def child(self, place: Int[Array, " B"], rank: Int[Array, ""]) -> Int[Array, " B"]:
        """Returns the child [B] of `place` [B] with a rank; any node if there is none."""
        return pick(self.nodes, pick(self.begin, place) + rank)


def _descend(
    draft: Draft,
    children: _Children,
    p: Float[Array, "B K1 V"],
    weights: Float[Array, "B K1"],
    place: Int[Array, " B"],
) -> tuple[Float[Array, " B"], Float[Array, "B V"], Float[Array, "B K1"]]:
    """Computes acceptance [B] of `place` [B], its residual and its children's weights.

    After the rejection of a child with all its descendants, with S = sum [w p - q]_+, w becomes
    S / (S + 1 - w) and p becomes [w p - q]_+ / S. The carry holds w p [B, V].
    """
    q_drafted, count = draft.distribution.prob(draft.tokens), pick(children.count, place)
    rows = jnp.arange(len(p))

    def reject(rank: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        weight, scaled, weights = carry
        node, here = children.child(place, rank), rank < count
        own = pick_tokens(scaled[:, None], pick(draft.tokens, node)[:, None])[:, 0]
        own = own / jnp.maximum(pick(q_drafted, node), jnp.finfo(p.dtype).tiny)
        slot = jnp.where(here, node + 1, p.shape[1])
        weights = weights.at[rows, slot].set(jnp.minimum(1.0, own), mode="drop")
        rest = draft.distribution.residual(scaled, node)
        total = jnp.sum(rest, axis=-1)
        # A node of weight 1 with a residual of rounding errors had p = q: it is unchanged.
        changes = here & ((weight < 1.0) | (total > NO_RESIDUAL))
        norm = jnp.where(changes, total + (1.0 - weight), 1.0)
        weight = jnp.where(changes, total / norm, weight)
        return weight, jnp.where(changes[:, None], rest / norm[:, None], scaled), weights

    weight = pick(weights, place)
    start = weight, weight[:, None] * pick(p, place), weights
    return jax.lax.fori_loop(0, jnp.max(count), reject, start)


def find_first_accepted(draft: Draft, accepted: Bool[Array, "B K"]) -> Int[Array, " B"]:
    """Returns the first accepted node [B]: descendants before ancestors, siblings in order.

    From the last node back, each node passes the first accepted node of its subtree to its parent;
    earlier siblings overwrite later ones.
    """
    rows = jnp.arange(len(accepted))

    def visit(turn: jax.Array, found: jax.Array) -> jax.Array:
        node = draft.width - 1 - turn
        parent, below = draft.tree_parents[:, node] + 1, found[:, node + 1]
        own = jnp.where(below != NONE, below, jnp.where(accepted[:, node], node, NONE))
        return found.at[rows, parent].set(jnp.where(own != NONE, own, pick(found, parent)))

    found = jnp.full((len(accepted), draft.width + 1), NONE)
    return jax.lax.fori_loop(0, draft.width, visit, found)[:, 0]
