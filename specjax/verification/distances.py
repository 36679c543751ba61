"""How far a drafted token is from the target's distribution, for rules with a threshold.

The mathematics is in docs/methods/bild.md. All on plain distributions (temperature 1, not
truncated): a truncated one would make every token outside of it infinitely far. Each maps a draft
and the target's logits [B, K, V] at its positions to [B, K].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.contracts.distribution import pick_tokens
from specjax.contracts.draft import Draft


def cross_entropy(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """-log p(x) in nats: the hard label of the drafter against the target's distribution."""
    return jax.nn.logsumexp(logits, axis=-1) - pick_tokens(logits, draft.tokens)


def kl(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """KL(q || p) in nats; the cross-entropy is its form for a one-hot q."""
    q = jax.nn.log_softmax(_proposed(draft), axis=-1)
    p = jax.nn.log_softmax(logits, axis=-1)
    weight = jnp.exp(q)
    return jnp.sum(jnp.where(weight > 0, weight * (q - p), 0.0), axis=-1)


def total_variation(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """Half the sum of |p - q|, in [0, 1]."""
    q = jax.nn.softmax(_proposed(draft), axis=-1)
    return 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(logits, axis=-1) - q), axis=-1)


def rank(draft: Draft, logits: Float[Array, "B K V"]) -> Int[Array, "B K"]:
    """How many tokens the target prefers to the drafted one; ties go to the lower id."""
    drafted = pick_tokens(logits, draft.tokens)[..., None]
    lower = jnp.arange(logits.shape[-1]) < draft.tokens[..., None]
    return jnp.sum((logits > drafted) | ((logits == drafted) & lower), axis=-1)


LOGITS = "logits"
"""Entry of `Draft.aux`, [B, K, V]: of the model that drafted."""

DISTANCES: dict[str, Callable[..., jax.Array]] = {
    "cross_entropy": cross_entropy,
    "kl": kl,
    "total_variation": total_variation,
    "rank": rank,
}

OF_DISTRIBUTIONS = ("kl", "total_variation")
"""Distances that need the proposer's logits in the draft."""


def _proposed(draft: Draft) -> Float[Array, "B K V"]:
    if LOGITS not in (draft.aux or {}):
        raise ValueError("this distance compares distributions; the drafter must keep its logits")
    return draft.aux[LOGITS]
