"""Training losses, each a pure function of logits and labels."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array, labels: jax.Array, mask: jax.Array, smoothing: float = 0.0
) -> jax.Array:
    """Mean negative log-likelihood (nats) of labels [B, T] over positions where mask [B, T].

    With label smoothing e the target law is (1 - e) one-hot + e uniform.
    """
    log_law = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    nll = -jnp.take_along_axis(log_law, labels[..., None], axis=-1)[..., 0]
    if smoothing:
        nll = (1.0 - smoothing) * nll - smoothing * jnp.mean(log_law, axis=-1)
    return jnp.sum(nll * mask) / jnp.maximum(jnp.sum(mask), 1)
