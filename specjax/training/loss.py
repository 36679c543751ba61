"""Losses per position, in nats; sums over positions, so that parts of a batch add up exactly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from specjax.sampling import find_largest


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
    """The loss and its residuals, without a second array of the logits' size."""
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
    labeled = labels[..., None] == jnp.arange(width)
    target = smoothing / width + jnp.where(labeled, 1.0 - smoothing, 0.0)
    return g[..., None] * (distribution - target), None


_cross_entropy_value.defvjp(_cross_entropy, _cross_entropy_gradient)


def forward_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(p || q) [...] of log probabilities [..., V]: the drafter q covers the target p."""
    return jnp.sum(jnp.exp(p) * (p - q), axis=-1)


def reverse_kl(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL(q || p) [...] of log probabilities [..., V]: the drafter q seeks modes of p."""
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


LEAST_ACCEPTANCE = 1e-5
"""Acceptance rate below which `lk_alpha` grows no further."""


def acceptance_rate(p: jax.Array, q: jax.Array) -> jax.Array:
    """sum_v min(p, q) [...] in float32 of log probabilities [..., V].

    The chance that speculative sampling accepts a token. p may sum to less than one: what q lacks
    is rejected. So it is in all losses below, none of which renormalizes p.
    """
    p, q = (jnp.exp(x.astype(jnp.float32)) for x in (p, q))
    return jnp.sum(jnp.minimum(p, q), axis=-1)


def lk_alpha(p: jax.Array, q: jax.Array) -> jax.Array:
    """Negative log of the acceptance rate [...] of log probabilities [..., V].

    The gradient is that of total variation over the acceptance rate, which `LEAST_ACCEPTANCE`
    bounds from below. Samarin et al., "LK Losses" (2026, arXiv 2602.23881).
    """
    alpha = acceptance_rate(p, q)
    fixed = jax.lax.stop_gradient(alpha)
    bounded = jnp.maximum(fixed, LEAST_ACCEPTANCE)
    # A clamped alpha has no gradient: a fresh drafter of 150,000 ids could never leave the bound.
    return (fixed - alpha) / bounded - jnp.log(bounded)


def lk_lambda(
    p: jax.Array, q: jax.Array, decay: float = 3.0, mask: jax.Array | None = None
) -> jax.Array:
    """lambda KL(p || q) + (1 - lambda) TV [...] of log probabilities [..., V].

    lambda is exp(-decay * acceptance rate), a constant to the gradient: KL where few tokens are
    accepted, total variation where many are. With a mask [...] one lambda is that of the mean
    acceptance rate where it is True. Samarin et al. (2026).
    """
    alpha = acceptance_rate(p, q)
    known = jax.lax.stop_gradient(alpha)
    if mask is not None:
        known = jnp.sum(jnp.where(mask, known, 0.0)) / jnp.maximum(jnp.sum(mask), 1)
    share = jnp.exp(-decay * known)
    return share * _kl_of_mass(p, q) + (1.0 - share) * (1.0 - alpha)


def _kl_of_mass(p: jax.Array, q: jax.Array) -> jax.Array:
    """KL [...] of p that sums to m <= 1: m KL(p / m || q), whose gradient needs no division."""
    probs = jnp.exp(p)
    mass = jnp.sum(probs, axis=-1)
    terms = jnp.where(probs > 0, probs * (p - q), 0.0)
    return jnp.sum(terms, axis=-1) - jax.scipy.special.xlogy(mass, mass)


def tv_ce(
    p: jax.Array,
    q: jax.Array,
    labels: jax.Array,
    ce_weight: float = 0.1,
    l1_weight: float = 0.9,
) -> jax.Array:
    """ce_weight CE(labels) + l1_weight ||p - q||_1 [...] of log probabilities [..., V].

    The L1 distance is twice total variation. A label [...] outside of 0 .. V - 1 has no
    cross-entropy. The loss of DSpark (2026, arXiv 2607.05147).
    """
    distance = 2.0 * (1.0 - acceptance_rate(p, q))
    labeled = labels[..., None] == jnp.arange(q.shape[-1])
    return l1_weight * distance - ce_weight * jnp.sum(jnp.where(labeled, q, 0.0), axis=-1)


def top_k_cross_entropy(p: jax.Array, q: jax.Array, k: int = 10) -> jax.Array:
    """-sum p log q [...] over the k most probable ids of p, of log probabilities [..., V].

    A loss of HASS (Zhang et al. 2024, arXiv 2408.15766).
    """
    ids = find_largest(p, min(k, p.shape[-1]))
    best, drafted = (jnp.take_along_axis(of, ids, axis=-1) for of in (p, q))
    return -jnp.sum(jnp.exp(best) * drafted, axis=-1)


ACCEPTANCE_AWARE: dict[str, Callable[..., jax.Array]] = {
    "lk_alpha": lk_alpha,
    "lk_lambda": lk_lambda,
    "tv_ce": tv_ce,
    "top_k": top_k_cross_entropy,
}
"""Losses that take p as it is, also where it sums to less than one."""

DIVERGENCES: dict[str, Callable[..., jax.Array]] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
    "total_variation": total_variation,
    **ACCEPTANCE_AWARE,
}

TINY = 1e-9
"""Positions with less probability on the ids that can be drafted are ignored."""

FROM_TARGET = ("cross_entropy", "forward_kl", "total_variation", *ACCEPTANCE_AWARE)
"""Divergences of `from_target`."""


def from_target(divergence: str, p: jax.Array, logits: jax.Array, **more: Any) -> jax.Array:
    """Divergence [B, T] of draft logits [B, T, U] from target probabilities p [B, T, U].

    p are those of the ids that can be drafted, and may sum to less than one: total_variation and
    the acceptance-aware losses, whose other arguments are `more`, count the others as rejected.
    cross_entropy is that of the target's most probable id.
    """
    q = jax.nn.log_softmax(logits, axis=-1)
    if divergence in ACCEPTANCE_AWARE:
        return ACCEPTANCE_AWARE[divergence](jnp.log(p), q, **more)
    mass = jnp.sum(p, axis=-1, keepdims=True)
    if divergence == "total_variation":
        # The mass that cannot be drafted adds half of itself to the distance for any q.
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

    Each loss is computed together with its gradient and before the next one. Intermediate arrays
    such as logits exist for one k at a time; only gradients of the size of the states are kept.
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
