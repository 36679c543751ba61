"""Cuts of a distribution: which tokens stay by how likely they are (docs/methods/sampling.md).

Each says of logits [..., V] which tokens [..., V] stay; the likeliest or, under typical sampling,
the most typical one always does. A token at -inf was cut before and has probability 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def above_share(logits: jax.Array, min_p: jax.Array | float) -> jax.Array:
    """Tokens of at least this share of the largest probability (Nguyen et al. 2024)."""
    probs = jax.nn.softmax(logits, axis=-1)
    return probs >= min_p * jnp.max(probs, axis=-1, keepdims=True)


def typical(logits: jax.Array, typical_p: jax.Array | float) -> jax.Array:
    """Tokens whose surprise is nearest to the entropy, until they sum to this probability.

    Locally typical sampling (Meister et al. 2023). Tokens as near as the last one stay too.
    """
    logp = jax.nn.log_softmax(logits, axis=-1)
    distance = jnp.abs(logp + _entropy(logp)[..., None])
    order = jnp.argsort(distance, axis=-1, stable=True)
    mass = jnp.cumsum(jnp.take_along_axis(jnp.exp(logp), order, axis=-1), axis=-1)
    last = jnp.sum(mass < typical_p, axis=-1, keepdims=True, dtype=jnp.int32)
    last = jnp.take_along_axis(order, jnp.minimum(last, logits.shape[-1] - 1), axis=-1)
    return distance <= jnp.take_along_axis(distance, last, axis=-1)


def above(logits: jax.Array, epsilon: jax.Array | float) -> jax.Array:
    """Tokens of at least this probability (Hewitt et al. 2022), the likeliest at least."""
    likeliest = logits == jnp.max(logits, axis=-1, keepdims=True)
    return likeliest | (jax.nn.softmax(logits, axis=-1) >= epsilon)


def above_entropy(logits: jax.Array, epsilon: jax.Array | float) -> jax.Array:
    """Tokens above the lower of epsilon and sqrt(epsilon) exp(-entropy) (eta sampling, ibid.)."""
    share = jnp.exp(-_entropy(jax.nn.log_softmax(logits, axis=-1)))
    return above(logits, jnp.minimum(epsilon, jnp.sqrt(epsilon) * share)[..., None])


def _entropy(logp: jax.Array) -> jax.Array:
    """Entropy [...] of log-probabilities [..., V]."""
    return -jnp.sum(jnp.where(logp > -jnp.inf, jnp.exp(logp) * logp, 0.0), axis=-1)
