"""Distances between drafted tokens and the target's distribution, for threshold rules.

Defined in docs/methods/bild.md. All use plain distributions (temperature 1, not truncated), because
tokens outside a truncated one would be infinitely far. Each maps a draft and the target's logits
[B, K, V] at its positions to [B, K].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.contracts.distribution import pick_tokens
from specjax.contracts.draft import Draft


def cross_entropy(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """Computes -log p(x) in nats, the cross-entropy of a one-hot q with p."""
    return jax.nn.logsumexp(logits, axis=-1) - pick_tokens(logits, draft.tokens)


def kl(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """Computes KL(q || p) in nats."""
    q = jax.nn.log_softmax(_get_drafter_logits(draft), axis=-1)
    p = jax.nn.log_softmax(logits, axis=-1)
    weight = jnp.exp(q)
    return jnp.sum(jnp.where(weight > 0, weight * (q - p), 0.0), axis=-1)


def total_variation(draft: Draft, logits: Float[Array, "B K V"]) -> Float[Array, "B K"]:
    """Computes the total variation, half the sum of |p - q|, in [0, 1]."""
    q = jax.nn.softmax(_get_drafter_logits(draft), axis=-1)
    return 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(logits, axis=-1) - q), axis=-1)


def rank(draft: Draft, logits: Float[Array, "B K V"]) -> Int[Array, "B K"]:
    """Counts tokens that the target prefers to the drafted one; ties go to the lower id."""
    drafted = pick_tokens(logits, draft.tokens)[..., None]
    lower = jnp.arange(logits.shape[-1]) < draft.tokens[..., None]
    return jnp.sum((logits > drafted) | ((logits == drafted) & lower), axis=-1)


LOGITS = "logits"
"""Entry of `Draft.aux`, [B, K, V]: the drafting model's logits."""

DISTANCES: dict[str, Callable[..., jax.Array]] = {
    "cross_entropy": cross_entropy,
    "kl": kl,
    "total_variation": total_variation,
    "rank": rank,
}

NEED_LOGITS = ("kl", "total_variation")
"""Distances that need the drafting model's logits in the draft."""


def _get_drafter_logits(draft: Draft) -> Float[Array, "B K V"]:
    if LOGITS not in (draft.aux or {}):
        raise ValueError("Draft.aux has no logits; a distance of distributions needs the drafter's")
    return draft.aux[LOGITS]
