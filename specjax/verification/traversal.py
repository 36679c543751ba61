"""Traversal verification: a tree is judged from its leaves on (docs/methods/trees.md).

Weng et al., "Traversal Verification for Speculative Tree Decoding" (2025), as block verification
with siblings. On a chain it is block verification.
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
from specjax.verification.speculative_sampling import split, uniform
from specjax.verification.tree import greedy_tree, verdict_at

NONE = -1
"""No node: the pending token alone."""


@RULES.register("traversal")
@dataclasses.dataclass(frozen=True)
class TraversalVerification(Rule):
    """The target's distribution, with the first node of a tree that may stand, leaves first.

    Nodes must have been drawn apart: what is behind a node is looked at before its siblings are.
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
            return greedy_tree(draft, reading.logits)
        return verify_traversal(draft, adjust(reading.logits, options.sampling), keys)


def verify_traversal(draft: Draft, p: Float[Array, "B K1 V"], keys: Key[Array, " B"]) -> Verdict:
    """Judges a tree against p [B, K+1, V], the target's distributions behind its nodes."""
    accept_keys, draw_keys = split(keys)
    weights, chances = acceptance_chances(draft, p)
    last = first(draft, uniform(accept_keys, draft.width) < chances[:, 1:])
    return verdict_at(draft, last, draw(draw_keys, residual_weights(draft, p, weights, last + 1)))


def acceptance_chances(
    draft: Draft, p: Float[Array, "B K1 V"]
) -> tuple[Float[Array, "B K1"], Float[Array, "B K1"]]:
    """Weights [B, K+1] of all places, and the chance [B, K+1] that each stands.

    Where all behind it and before it fell. Place 0 is the pending token, which always stands.
    A node begins with the weight w = min(1, w_above p_above(x) / q(x)); `_descend` says what is
    left
    of it when its children fell.
    """
    children = _Children.of(draft)

    def visit(place: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, chances = carry
        at = jnp.broadcast_to(place, draft.length.shape)
        left, _, weights = _descend(draft, children, p, weights, at)
        return weights, chances.at[:, place].set(left)

    weights = jnp.zeros(p.shape[:2], p.dtype).at[:, 0].set(1.0)
    return jax.lax.fori_loop(0, draft.width + 1, visit, (weights, weights))


def residual_weights(
    draft: Draft, p: Float[Array, "B K1 V"], weights: Float[Array, "B K1"], place: Int[Array, " B"]
) -> Float[Array, "B V"]:
    """Weights [B, V] of the token behind `place` [B], where all that hangs on it fell.

    As in `lossless`, p itself where nothing is left but rounding.
    """
    chance, rest, _ = _descend(draft, _Children.of(draft), p, weights, place)
    return jnp.where((chance > NO_RESIDUAL)[:, None], rest, pick(p, place))


class _Children(struct.PyTreeNode):
    """The nodes in the order of what they hang on, siblings in their own."""

    nodes: Int32[Array, "B K"]
    begin: Int32[Array, "B K+1"]  # where those of each place begin
    count: Int32[Array, "B K+1"]

    @classmethod
    def of(cls, draft: Draft) -> _Children:
        there = jnp.arange(draft.width) < draft.length[:, None]
        above = jnp.where(there, draft.tree_parents + 1, draft.width + 1)
        hangs = above[:, None] == jnp.arange(draft.width + 1)[:, None]
        count = jnp.sum(hangs, axis=-1, dtype=jnp.int32)
        nodes = jnp.argsort(above, axis=1, stable=True)
        return cls(nodes, jnp.cumsum(count, axis=1) - count, count)

    def child(self, place: Int[Array, " B"], rank: Int[Array, ""]) -> Int[Array, " B"]:
        """The node [B] of that rank on `place` [B]; any where there is none."""
        return pick(self.nodes, pick(self.begin, place) + rank)


def _descend(
    draft: Draft,
    children: _Children,
    p: Float[Array, "B K1 V"],
    weights: Float[Array, "B K1"],
    place: Int[Array, " B"],
) -> tuple[Float[Array, " B"], Float[Array, "B V"], Float[Array, "B K1"]]:
    """The chance [B] that `place` [B] stands, what it then draws from, and the children's weights.

    Each child that falls with all that hangs on it leaves S = sum [w p - q]_+ of it: then w becomes
    S / (S + 1 - w) and p becomes [w p - q]_+ / S. Carried is w p [B, V].
    """
    q_drafted, count = draft.distribution.of(draft.tokens), pick(children.count, place)
    rows = jnp.arange(len(p))

    def fall(rank: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        weight, scaled, weights = carry
        node, here = children.child(place, rank), rank < count
        own = pick_tokens(scaled[:, None], pick(draft.tokens, node)[:, None])[:, 0]
        own = own / jnp.maximum(pick(q_drafted, node), jnp.finfo(p.dtype).tiny)
        slot = jnp.where(here, node + 1, p.shape[1])
        weights = weights.at[rows, slot].set(jnp.minimum(1.0, own), mode="drop")
        rest = draft.distribution.residual(scaled, node)
        total = jnp.sum(rest, axis=-1)
        # A sure place of which nothing is left but rounding had p = q: it stays as it was.
        moves = here & ((weight < 1.0) | (total > NO_RESIDUAL))
        falls = jnp.where(moves, total + (1.0 - weight), 1.0)
        weight = jnp.where(moves, total / falls, weight)
        return weight, jnp.where(moves[:, None], rest / falls[:, None], scaled), weights

    weight = pick(weights, place)
    start = weight, weight[:, None] * pick(p, place), weights
    return jax.lax.fori_loop(0, jnp.max(count), fall, start)


def first(draft: Draft, stands: Bool[Array, "B K"]) -> Int[Array, " B"]:
    """The node [B] that stands first: what hangs on a node before it, siblings in their order.

    From the last node back, every place learns of the first one among and behind its children;
    those of earlier siblings come later and count.
    """
    rows = jnp.arange(len(stands))

    def visit(turn: jax.Array, found: jax.Array) -> jax.Array:
        node = draft.width - 1 - turn
        above, behind = draft.tree_parents[:, node] + 1, found[:, node + 1]
        own = jnp.where(behind != NONE, behind, jnp.where(stands[:, node], node, NONE))
        return found.at[rows, above].set(jnp.where(own != NONE, own, pick(found, above)))

    found = jnp.full((len(stands), draft.width + 1), NONE)
    return jax.lax.fori_loop(0, draft.width, visit, found)[:, 0]
