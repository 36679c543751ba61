"""Traversal verification: a tree is judged from its leaves on (docs/methods/trees.md).

Weng et al., "Traversal Verification for Speculative Tree Decoding" (2025), as block verification
with siblings. On a chain it is block verification.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core.context import Options
from specjax.core.distribution import NO_RESIDUAL, of_tokens, pick
from specjax.core.draft import Draft
from specjax.core.reading import Reading
from specjax.core.registry import RULES
from specjax.core.rule import Rule
from specjax.core.verdict import Verdict
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

    def judge(self, draft: Draft, reading: Reading, options: Options, keys: jax.Array) -> Verdict:
        if draft.parents is None:
            return BlockVerification().judge(draft, reading, options, keys)
        if options.sampling.greedy:
            return greedy_tree(draft, reading.logits)
        return traversed(draft, adjust(reading.logits, options.sampling), keys)


def traversed(draft: Draft, p: jax.Array, keys: jax.Array) -> Verdict:
    """Judges a tree against p [B, K+1, V], the target's distributions behind its nodes."""
    accept_keys, draw_keys = split(keys)
    chances, laws = standing(draft, p)
    last = first(draft, uniform(accept_keys, draft.width) < chances[:, 1:])
    return verdict_at(draft, last, draw(draw_keys, pick(laws, last + 1)))


def standing(draft: Draft, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The chance [B, K+1] that a place stands, where all behind it and before it fell.

    And the law [B, K+1, V] of the token that then follows. Place 0 is the pending token, which
    always stands. A node begins with w = min(1, w_above p_above(x) / q(x)); each child that falls
    with all that hangs on it leaves S = sum [w p - q]_+ of it: then w becomes S / (S + 1 - w) and p
    becomes [w p - q]_+ / S.
    """
    q_drafted = draft.distribution.of(draft.tokens)
    rows = jnp.arange(len(p))

    def visit(node: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, laws = carry
        token, above = draft.tokens[:, node], draft.parents[:, node] + 1
        scaled = pick(weights, above)[:, None] * pick(laws, above)
        here = node < draft.length
        own = of_tokens(scaled[:, None], token[:, None])[:, 0]
        own = jnp.minimum(1.0, own / jnp.maximum(q_drafted[:, node], jnp.finfo(p.dtype).tiny))
        rest = draft.distribution.residual(scaled, jnp.broadcast_to(node, token.shape))
        weight, law = _behind(pick(weights, above), pick(laws, above), rest)
        weights = weights.at[rows, above].set(jnp.where(here, weight, pick(weights, above)))
        laws = laws.at[rows, above].set(jnp.where(here[:, None], law, pick(laws, above)))
        return weights.at[:, node + 1].set(jnp.where(here, own, 0.0)), laws

    weights = jnp.ones(p.shape[:2], p.dtype)
    return jax.lax.fori_loop(0, draft.width, visit, (weights, p))


def _behind(weight: jax.Array, law: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weight [B] and law [B, V] of a place whose child fell; `rest` is [w p - q]_+."""
    total = jnp.sum(rest, axis=-1)
    falls = total + (1.0 - weight)
    left = jnp.where(falls > 0.0, total / jnp.where(falls > 0.0, falls, 1.0), 1.0)
    known = total > NO_RESIDUAL
    return left, jnp.where(known[:, None], rest / jnp.where(known, total, 1.0)[:, None], law)


def first(draft: Draft, stands: jax.Array) -> jax.Array:
    """The node [B] that stands first: what hangs on a node before it, siblings in their order.

    From the last node back, every place learns of the first one among and behind its children;
    those of earlier siblings come later and count.
    """
    rows = jnp.arange(len(stands))

    def visit(turn: jax.Array, found: jax.Array) -> jax.Array:
        node = draft.width - 1 - turn
        above, behind = draft.parents[:, node] + 1, found[:, node + 1]
        own = jnp.where(behind != NONE, behind, jnp.where(stands[:, node], node, NONE))
        return found.at[rows, above].set(jnp.where(own != NONE, own, pick(found, above)))

    found = jnp.full((len(stands), draft.width + 1), NONE)
    return jax.lax.fori_loop(0, draft.width, visit, found)[:, 0]
