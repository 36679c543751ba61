"""The distribution that each drafted token was drawn from.

Rules ask a distribution and never whether there is one: a drafter that copies or takes the argmax
gives `OneHot`, which is nothing but the tokens; one that samples gives `Categorical`.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct


class Distribution(Protocol):
    """Distributions of K positions in every row."""

    def of(self, tokens: jax.Array) -> jax.Array:
        """Probability [B, K] of tokens [B, K]."""

    def overlap(self, p: jax.Array) -> jax.Array:
        """sum_x min(p, q) [B, K] with p [B, K, V]."""

    def residual(self, p: jax.Array, at: jax.Array) -> jax.Array:
        """[p - q]_+ [B, V], not normalised, of p [B, V] and position `at` [B]."""

    def categorical(self, vocabulary: int) -> Categorical:
        """The same with all probabilities written out."""

    def narrow(self, width: int) -> Distribution:
        """The first `width` positions."""


@struct.dataclass
class OneHot:
    """Every token was certain; the probabilities are never materialised."""

    tokens: jax.Array  # [B, K] int32

    def of(self, tokens: jax.Array) -> jax.Array:
        return (tokens == self.tokens).astype(jnp.float32)

    def overlap(self, p: jax.Array) -> jax.Array:
        return of_tokens(p, self.tokens)

    def residual(self, p: jax.Array, at: jax.Array) -> jax.Array:
        return p * (1.0 - jax.nn.one_hot(pick(self.tokens, at), p.shape[-1], dtype=p.dtype))

    def categorical(self, vocabulary: int) -> Categorical:
        return Categorical(jax.nn.one_hot(self.tokens, vocabulary, dtype=jnp.float32))

    def narrow(self, width: int) -> OneHot:
        return OneHot(self.tokens[:, :width])


@struct.dataclass
class Categorical:
    """Probabilities of the whole vocabulary at every position."""

    probs: jax.Array  # [B, K, V] float32

    def of(self, tokens: jax.Array) -> jax.Array:
        return of_tokens(self.probs, tokens)

    def overlap(self, p: jax.Array) -> jax.Array:
        return jnp.sum(jnp.minimum(p, self.probs), axis=-1)

    def residual(self, p: jax.Array, at: jax.Array) -> jax.Array:
        return jnp.maximum(p - pick(self.probs, at), 0.0)

    def categorical(self, vocabulary: int) -> Categorical:
        return self

    def narrow(self, width: int) -> Categorical:
        return Categorical(self.probs[:, :width])


def pick(values: jax.Array, index: jax.Array) -> jax.Array:
    """values[b, index[b]] for values [B, N, ...]."""
    index = index.reshape(index.shape + (1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, index, axis=1, mode="clip")[:, 0]


def of_tokens(values: jax.Array, tokens: jax.Array) -> jax.Array:
    """values[b, k, tokens[b, k]] for values [B, K, V]."""
    return jnp.take_along_axis(values, tokens[..., None], axis=-1, mode="clip")[..., 0]


def probability(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Plain (temperature 1) probability [B, K] of tokens [B, K] under logits [B, K, V]."""
    return jnp.exp(of_tokens(logits, tokens) - jax.nn.logsumexp(logits, axis=-1))
