"""Losses per position, in nats; sums over positions, so that parts of a batch add up exactly."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """Negative log-likelihood [B, T] of labels [B, T] under logits [B, T, V].

    With label smoothing e the target is (1 - e) one-hot + e uniform. A label outside the
    vocabulary gives NaN.
    """
    return _cross_entropy_value(logits, labels, smoothing)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _cross_entropy_value(logits: jax.Array, labels: jax.Array, smoothing: float) -> jax.Array:
    return _cross_entropy(logits, labels, smoothing)[0]


def _cross_entropy(
    logits: jax.Array, labels: jax.Array, smoothing: float
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """The loss, and what its gradient needs: no second array of the logits' size."""
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    expected = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    if smoothing:
        expected = (1.0 - smoothing) * expected + smoothing * jnp.mean(logits, axis=-1)
    return normalizer - expected, (logits, normalizer, labels)


def _cross_entropy_gradient(
    smoothing: float, kept: tuple[jax.Array, jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, None]:
    """Softmax minus the target, in one pass; autodiff scatters into an array of zeros."""
    logits, normalizer, labels = kept
    width = logits.shape[-1]
    distribution = jnp.exp(logits - normalizer[..., None])
    labelled = labels[..., None] == jnp.arange(width)
    target = smoothing / width + jnp.where(labelled, 1.0 - smoothing, 0.0)
    return g[..., None] * (distribution - target), None


_cross_entropy_value.defvjp(_cross_entropy, _cross_entropy_gradient)


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

TINY = 1e-9
"""Probability of all ids that can be drafted, below which a position teaches nothing."""

FROM_TARGET = ("cross_entropy", "forward_kl", "total_variation")
"""What `from_target` knows."""


def from_target(divergence: str, p: jax.Array, logits: jax.Array) -> jax.Array:
    """How far [B, T] drafts of logits [B, T, U] are from the target's probabilities p [B, T, U].

    p are those of the ids that can be drafted, and may sum to less than one: total_variation counts
    the others as rejected. cross_entropy is that of the target's likeliest id.
    """
    q = jax.nn.log_softmax(logits, axis=-1)
    mass = jnp.sum(p, axis=-1, keepdims=True)
    if divergence == "total_variation":
        # What cannot be drafted is half of a distance that q can do nothing about.
        return total_variation(jnp.log(jnp.maximum(p, TINY)), q) + 0.5 * (1 - mass[..., 0])
    if divergence == "cross_entropy":
        p = (p == jnp.max(p, axis=-1, keepdims=True)).astype(p.dtype)
        loss = -jnp.sum(p * q, axis=-1) / jnp.sum(p, axis=-1)
    else:
        p = p / jnp.maximum(mass, TINY)
        loss = forward_kl(jnp.log(jnp.maximum(p, TINY)), q)
    return jnp.where(mass[..., 0] > TINY, loss, 0.0)


def one_by_one(
    loss: Callable[[jax.Array, jax.Array], jax.Array], states: jax.Array, weights: jax.Array
) -> jax.Array:
    """sum_k loss(states[k], weights[k]) [] of states [K, ...], the only ones with a gradient.

    Each loss is computed together with its gradient and before the next: what lies between, as
    logits, is there of one k at a time, and of all only gradients as large as states are kept.
    """

    def forward(states: jax.Array) -> tuple[jax.Array, jax.Array]:
        with_gradient = jax.value_and_grad(loss)
        values, gradients = jax.lax.map(lambda one: with_gradient(*one), (states, weights))
        return jnp.sum(values), gradients

    def backward(gradients: jax.Array, g: jax.Array) -> tuple[jax.Array]:
        return ((g * gradients).astype(gradients.dtype),)

    @jax.custom_vjp
    def total(states: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.map(lambda one: loss(*one), (states, weights)))

    total.defvjp(forward, backward)
    return total(states)
