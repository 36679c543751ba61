"""Losses per position, in nats; sums over positions, so that parts of a batch add up exactly."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """Negative log-likelihood [B, T] of labels [B, T] under logits [B, T, V].

    With label smoothing e the target law is (1 - e) one-hot + e uniform.
    """
    log_law = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    nll = -jnp.take_along_axis(log_law, labels[..., None], axis=-1)[..., 0]
    if smoothing:
        nll = (1.0 - smoothing) * nll - smoothing * jnp.mean(log_law, axis=-1)
    return nll


def forward_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(p || q) [...] of log-laws [..., V]: the drafter q covers what the target p does."""
    return jnp.sum(jnp.exp(p) * (p - q), axis=-1)


def reverse_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(q || p) [...] of log-laws [..., V]: the drafter q stays where the target p is."""
    return forward_kl(q, p)


def jensen_shannon(p: jax.Array, q: jax.Array) -> jax.Array:
    """Mean divergence [...] of both log-laws [..., V] from their mixture."""
    mixture = jnp.logaddexp(p, q) - jnp.log(2.0)
    return 0.5 * (forward_kl(p, mixture) + forward_kl(q, mixture))


def total_variation(p: jax.Array, q: jax.Array) -> jax.Array:
    """Half the L1 distance [...] of log-laws [..., V].

    Exactly one minus the chance that speculative sampling accepts a token (Leviathan et al. 2023,
    Corollary 3.6).
    """
    return 0.5 * jnp.sum(jnp.abs(jnp.exp(p) - jnp.exp(q)), axis=-1)


DIVERGENCES = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
    "total_variation": total_variation,
}
