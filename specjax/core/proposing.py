"""Drawing a token from logits, as drafters do."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.core.distribution import Categorical, Distribution, OneHot
from specjax.sampling import Sampling, adjust, argmax, draw, largest


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

    The largest of perturbed logarithms are, from the first on, such draws one after another.
    """

    def one(key: jax.Array, probs: jax.Array) -> jax.Array:
        noise = jax.random.gumbel(key, probs.shape)
        return largest(jnp.log(probs) + noise, count)

    return jax.vmap(jax.vmap(one))(keys, probs).astype(jnp.int32)
