"""How far a drafted token is from the target's law, for rules with a threshold.

See docs/methods/bild.md, "Rollback".

All on plain laws (temperature 1, not truncated): a truncated law would make every token outside of
it infinitely far. Each maps a draft and the target's logits [B, K, V] at its positions to [B, K].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax.verification.base import of_tokens


def cross_entropy(draft, logits: jax.Array) -> jax.Array:
    """-log p(x) in nats: the hard label of the drafter against the target's law."""
    return jax.nn.logsumexp(logits, axis=-1) - of_tokens(logits, draft.tokens)


def kl(draft, logits: jax.Array) -> jax.Array:
    """KL(q || p) in nats; the cross-entropy is its form for a one-hot q."""
    q = jax.nn.log_softmax(_proposed(draft), axis=-1)
    p = jax.nn.log_softmax(logits, axis=-1)
    weight = jnp.exp(q)
    return jnp.sum(jnp.where(weight > 0, weight * (q - p), 0.0), axis=-1)


def total_variation(draft, logits: jax.Array) -> jax.Array:
    """Half the sum of |p - q|, in [0, 1]."""
    q = jax.nn.softmax(_proposed(draft), axis=-1)
    return 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(logits, axis=-1) - q), axis=-1)


def rank(draft, logits: jax.Array) -> jax.Array:
    """How many tokens the target prefers to the drafted one; ties go to the lower id."""
    drafted = of_tokens(logits, draft.tokens)[..., None]
    lower = jnp.arange(logits.shape[-1]) < draft.tokens[..., None]
    return jnp.sum((logits > drafted) | ((logits == drafted) & lower), axis=-1)


DISTANCES: dict[str, Callable[..., jax.Array]] = {
    "cross_entropy": cross_entropy,
    "kl": kl,
    "total_variation": total_variation,
    "rank": rank,
}

OF_LAWS = ("kl", "total_variation")
"""Distances that need the proposer's logits in the draft."""


def _proposed(draft) -> jax.Array:
    if draft.logits is None:
        raise ValueError("this distance compares laws; the drafter must keep its logits")
    return draft.logits
