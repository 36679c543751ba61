"""Losses per position, in nats; sums over positions, so that parts of a batch add up exactly."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def cross_entropy(logits: jax.Array, labels: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """Negative log-likelihood [B, T] of labels [B, T] under logits [B, T, V].

    With label smoothing e the target is (1 - e) one-hot + e uniform. A label outside the
    vocabulary gives NaN.
    """
    return _cross_entropy(logits, labels, smoothing)[0]


def _cross_entropy(
    logits: jax.Array, labels: jax.Array, smoothing: float
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """The loss, and what its gradient needs: no second array of the logits' size."""
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    expected = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    if smoothing:
        expected = (1.0 - smoothing) * expected + smoothing * jnp.mean(logits, axis=-1)
    return normaliser - expected, (logits, normaliser, labels)


def _cross_entropy_gradient(
    smoothing: float, kept: tuple[jax.Array, jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, None]:
    """Softmax minus the target, in one pass; autodiff scatters into an array of zeros."""
    logits, normaliser, labels = kept
    width = logits.shape[-1]
    distribution = jnp.exp(logits - normaliser[..., None])
    labelled = labels[..., None] == jnp.arange(width)
    target = smoothing / width + jnp.where(labelled, 1.0 - smoothing, 0.0)
    return g[..., None] * (distribution - target), None


cross_entropy.defvjp(_cross_entropy, _cross_entropy_gradient)


def forward_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(p || q) [...] of log probabilities [..., V]: the drafter q covers what the target does."""
    return jnp.sum(jnp.exp(p) * (p - q), axis=-1)


def reverse_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(q || p) [...] of log probabilities [..., V]: the drafter q stays where the target p is."""
    return forward_kl(q, p)


def jensen_shannon(p: jax.Array, q: jax.Array) -> jax.Array:
    """Mean divergence [...] of both log probabilities [..., V] from their mixture."""
    mixture = jnp.logaddexp(p, q) - jnp.log(2.0)
    return 0.5 * (forward_kl(p, mixture) + forward_kl(q, mixture))


def total_variation(p: jax.Array, q: jax.Array) -> jax.Array:
    """Half the L1 distance [...] of log probabilities [..., V].

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
