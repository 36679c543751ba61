"""The rule contract: how many drafted tokens stand, and which token follows."""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Verdict:
    """What a rule decided for each row."""

    accepted: jax.Array  # [B] int32: length of the leading run of drafted tokens that stand
    next_token: jax.Array  # [B] int32: correction or bonus token
    overlap: jax.Array  # [B] float32: sum of min(p, q) over the tested positions
    adds: jax.Array | None = None  # [B] bool: whether `next_token` is committed; None: always
    layers: jax.Array | None = None  # [B] int32: decoder layers that gave the logits, under CALM
    # [B, K+1, V]: the law of every token that the rule lets through, corrections included, for
    # nestable rules (docs/methods/cascade.md, "Induced distributions"); None when they are
    # deterministic.
    probs: jax.Array | None = None


class Rule(Protocol):
    """Acceptance rule; frozen and hashable."""

    @property
    def lossless(self) -> bool:
        """Whether outputs keep the target's law (and equal its argmax when greedy)."""

    @property
    def nestable(self) -> bool:
        """Whether the rule may review inside a cascade: it then says `Verdict.probs`."""

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        """Judges a `Draft` by the target's logits [B, K+1, V]; consumes `keys` [B]."""


def leading_run(passed: jax.Array, length: jax.Array) -> jax.Array:
    """Length [B] of the leading run of True in passed [B, K] among each row's first `length`."""
    inside = jnp.arange(passed.shape[1]) < length[:, None]
    return jnp.sum(jnp.cumprod((passed & inside).astype(jnp.int32), axis=1), axis=1)


def tested(accepted: jax.Array, length: jax.Array) -> jax.Array:
    """Positions [B] put to the test: the accepted ones and, if any, the first rejected one."""
    return jnp.minimum(accepted + 1, length)


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
