"""Drawing a token from logits, as drafters do."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.core.distribution import Categorical, Distribution, OneHot
from specjax.sampling import Sampling, adjust, argmax, draw


def propose(
    logits: jax.Array, settings: Sampling, keys: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """A token [B] from logits [B, V] and the probabilities [B, V] it was drawn from.

    None when greedy: `adjusted` makes a distribution of tokens and probabilities.
    """
    if settings.greedy:
        return argmax(logits), None
    probs = adjust(logits, settings)
    return draw(keys, probs), probs


def drawn_from(tokens: jax.Array, probs: jax.Array | None) -> Distribution:
    """The distribution of tokens [B, K] drawn from probs [B, K, V], or certain ones (None)."""
    return OneHot(tokens) if probs is None else Categorical(probs)


def draw_in_order(keys: jax.Array, probs: jax.Array, count: int) -> jax.Array:
    """`count` tokens [B, D, count] drawn without replacement from probs [B, D, V].

    When nothing is left to draw from, they are the lowest ids of probability 0.
    """
    rows, parents, vocabulary = probs.shape
    left, keys, drawn = probs.reshape(-1, vocabulary), keys.reshape(-1), []
    for own in jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys):
        token = draw(own, jnp.maximum(left, 0.0))
        token = jnp.where(jnp.any(left > 0, axis=-1), token, argmax(left))
        left = left.at[jnp.arange(len(left)), token].set(-1.0)
        drawn.append(token)
    return jnp.stack(drawn, axis=-1).reshape(rows, parents, count)
