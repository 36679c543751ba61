"""The draft distribution q of each drafted token.

A drafter that copies tokens or takes the argmax returns `OneHot`, which stores the tokens only; a
drafter that samples returns `Categorical`.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32, Key, Shaped

from specjax.sampling import Sampling, adjust, argmax, draw

NO_RESIDUAL = 1e-12
"""A residual [p - q]_+ of at most this mass is rounding error of p = q; p replaces it."""


class Distribution(Protocol):
    """Draft distributions q of K positions in every row."""

    def prob(self, tokens: Int[Array, "B K"]) -> Float[Array, "B K"]:
        """Probability q(x) [B, K] of tokens [B, K]."""
        ...

    def overlap(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        """sum_x min(p, q) [B, K] with p [B, K, V]."""
        ...

    def excess(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        """sum_x [p - q]_+ [B, K] with p [B, K, V], without a threshold."""
        ...

    def residual(self, p: Float[Array, "B V"], at: Int[Array, " B"]) -> Float[Array, "B V"]:
        """Unnormalized residual [p - q]_+ [B, V] of p [B, V] and q at position `at` [B]."""
        ...

    def categorical(self, vocabulary: int) -> Categorical:
        """Returns the same distributions with explicit probabilities."""
        ...

    def narrow(self, width: int) -> Distribution:
        """Returns the distributions of the first `width` positions."""
        ...


class OneHot(struct.PyTreeNode):
    """One-hot distributions, stored as tokens; probabilities are never materialized."""

    tokens: Int32[Array, "B K"]

    def prob(self, tokens: Int[Array, "B K"]) -> Float[Array, "B K"]:
        return (tokens == self.tokens).astype(jnp.float32)

    def overlap(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        return pick_tokens(p, self.tokens)

    def excess(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        own = self.tokens[..., None] == jnp.arange(p.shape[-1])
        return jnp.sum(jnp.where(own, jnp.maximum(p - 1.0, 0.0), p), axis=-1)

    def residual(self, p: Float[Array, "B V"], at: Int[Array, " B"]) -> Float[Array, "B V"]:
        return p * (1.0 - jax.nn.one_hot(pick(self.tokens, at), p.shape[-1], dtype=p.dtype))

    def categorical(self, vocabulary: int) -> Categorical:
        return Categorical(jax.nn.one_hot(self.tokens, vocabulary, dtype=jnp.float32))

    def narrow(self, width: int) -> OneHot:
        return OneHot(self.tokens[:, :width])


class Categorical(struct.PyTreeNode):
    """Explicit probabilities of the whole vocabulary at every position."""

    probs: Float32[Array, "B K V"]

    def prob(self, tokens: Int[Array, "B K"]) -> Float[Array, "B K"]:
        return pick_tokens(self.probs, tokens)

    def overlap(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        return jnp.sum(jnp.minimum(p, self.probs), axis=-1)

    def excess(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        return jnp.sum(jnp.maximum(p - self.probs, 0.0), axis=-1)

    def residual(self, p: Float[Array, "B V"], at: Int[Array, " B"]) -> Float[Array, "B V"]:
        return jnp.maximum(p - pick(self.probs, at), 0.0)

    def categorical(self, vocabulary: int) -> Categorical:
        return self

    def narrow(self, width: int) -> Categorical:
        return Categorical(self.probs[:, :width])


class WithoutReplacement(struct.PyTreeNode):
    """Distributions of tree nodes whose siblings were drawn without replacement.

    There are D distributions: one for each level, whose nodes then share the draws, or one for each
    parent. `drawn` are the siblings' tokens in the order of drawing. Node k has rank `ranks[k]`
    among the draws from distribution `levels[k]`.
    """

    probs: Float32[Array, "B D V"]
    drawn: Int32[Array, "B D W"]
    remaining: Float32[Array, "B D W"]  # probability mass left before each draw
    levels: tuple[int, ...] = struct.field(pytree_node=False)  # of K nodes
    ranks: tuple[int, ...] = struct.field(pytree_node=False)

    @classmethod
    def from_draws(
        cls,
        probs: Float[Array, "B D V"],
        drawn: Int[Array, "B D W"],
        levels: tuple[int, ...],
        ranks: tuple[int, ...],
    ) -> WithoutReplacement:
        """Builds the distribution of siblings `drawn` from `probs`."""
        return cls(probs, drawn, compute_remaining_mass(probs, drawn), levels, ranks)

    def prob(self, tokens: Int[Array, "B K"]) -> Float[Array, "B K"]:
        levels, ranks = jnp.array(self.levels), jnp.array(self.ranks)
        q = self.probs[jnp.arange(len(tokens))[:, None], levels, tokens]
        # With no mass left the token was not drawn, so it is rejected.
        return jnp.where(q > 0, q / jnp.maximum(self.remaining[:, levels, ranks], q), jnp.inf)

    def overlap(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        return self.categorical(p.shape[-1]).overlap(p)

    def excess(self, p: Float[Array, "B K V"]) -> Float[Array, "B K"]:
        return self.categorical(p.shape[-1]).excess(p)

    def residual(self, p: Float[Array, "B V"], at: Int[Array, " B"]) -> Float[Array, "B V"]:
        return jnp.maximum(p - self._node_probs(at), 0.0)

    def _node_probs(self, at: Int[Array, " B"]) -> Float[Array, "B V"]:
        """Probabilities [B, V] from which node `at` [B] was drawn."""
        level, rank = jnp.array(self.levels)[at], jnp.array(self.ranks)[at]
        q, drawn = pick(self.probs, level), pick(self.drawn, level)
        earlier = jnp.arange(drawn.shape[1]) < rank[:, None]
        gone = jnp.where(earlier, drawn, q.shape[-1])
        left = q.at[jnp.arange(len(q))[:, None], gone].set(0.0, mode="drop")
        mass = pick(pick(self.remaining, level), rank)[:, None]
        return left / jnp.where(mass > 0, mass, 1.0)

    def categorical(self, vocabulary: int) -> Categorical:
        rows = len(self.probs)
        nodes = [jnp.full(rows, node) for node in range(len(self.levels))]
        return Categorical(jnp.stack([self._node_probs(at) for at in nodes], axis=1))

    def narrow(self, width: int) -> WithoutReplacement:
        return self.replace(levels=self.levels[:width], ranks=self.ranks[:width])


def compute_remaining_mass(
    probs: Float[Array, "B D V"], drawn: Int[Array, "B D W"]
) -> Float[Array, "B D W"]:
    """Probability mass [B, D, W] left before each draw of `drawn` [B, D, W] from probs [B, D, V].

    A sum from the last sibling back, without subtraction: for a nearly certain drafter, 1 - q has
    no significant digits in single precision.
    """
    own = jnp.take_along_axis(probs, drawn, axis=-1)
    later = jax.lax.cumsum(own, axis=own.ndim - 1, reverse=True)
    row, level = jnp.arange(len(probs))[:, None, None], jnp.arange(probs.shape[1])[:, None]
    rest = probs.at[row, level, drawn].set(0.0)
    return jnp.sum(rest, axis=-1, keepdims=True) + later


def pick(values: Shaped[Array, "B N *rest"], index: Int[Array, " B"]) -> Shaped[Array, " B *rest"]:
    """Returns values[b, index[b]] of values [B, N, ...]."""
    index = index.reshape(index.shape + (1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, index, axis=1, mode="clip")[:, 0]


def pick_tokens(values: Float[Array, "B K V"], tokens: Int[Array, "B K"]) -> Float[Array, "B K"]:
    """Returns values[b, k, tokens[b, k]] [B, K] of values [B, K, V]."""
    return jnp.take_along_axis(values, tokens[..., None], axis=-1, mode="clip")[..., 0]


def compute_probability(
    logits: Float[Array, "B K V"], tokens: Int[Array, "B K"]
) -> Float[Array, "B K"]:
    """Plain (temperature 1) probability [B, K] of tokens [B, K] under logits [B, K, V]."""
    return jnp.exp(pick_tokens(logits, tokens) - jax.nn.logsumexp(logits, axis=-1))


def propose(
    logits: Float[Array, "B V"], settings: Sampling, keys: Key[Array, " B"]
) -> tuple[Int[Array, " B"], Float[Array, "B V"] | None]:
    """Draws a token [B] from logits [B, V]; also returns its distribution [B, V].

    The distribution is None when greedy, as `make_distribution` expects.
    """
    if settings.greedy:
        return argmax(logits), None
    probs = adjust(logits, settings)
    return draw(keys, probs), probs


def make_distribution(
    tokens: Int[Array, "B K"], probs: Float[Array, "B K V"] | None
) -> Distribution:
    """Distribution of tokens [B, K] drawn from probs [B, K, V]; one-hot if probs is None."""
    return OneHot(tokens) if probs is None else Categorical(probs)


def draw_without_replacement(
    keys: Key[Array, "B D"], probs: Float[Array, "B D V"], count: int
) -> Int[Array, "B D {count}"]:
    """Draws `count` tokens [B, D, count] without replacement from probs [B, D, V].

    When no mass is left, the tokens are the lowest ids of probability 0.
    """
    rows, parents, vocabulary = probs.shape
    left, keys, drawn = probs.reshape(-1, vocabulary), keys.reshape(-1), []
    for own in jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys):
        token = draw(own, jnp.maximum(left, 0.0))
        token = jnp.where(jnp.any(left > 0, axis=-1), token, argmax(left))
        left = left.at[jnp.arange(len(left)), token].set(-1.0)
        drawn.append(token)
    return jnp.stack(drawn, axis=-1).reshape(rows, parents, count)
