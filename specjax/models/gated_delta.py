"""Gated delta networks: recurrent layers of hybrid models (Yang et al. 2025).

Queries, keys and values pass a short convolution; each head then runs the gated delta rule
(`models.recurrence`) on them, and its normed output is gated. G key heads of width E serve H value
heads of width F.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.layers import ACTIVATIONS, Dense, merge_heads, split_heads
from specjax.models.norms import RMSNorm
from specjax.models.recurrence import Inputs
from specjax.models.recurrent_layers import Projections, Recurrence, RecurrentLayer

NORM_EPS = 1e-6
"""Added to the squared length of a query or key."""


@dataclasses.dataclass(frozen=True)
class GatedDelta(Recurrence):
    """Shape of a gated delta network."""

    def __post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"linear_num_key_heads is {self.key_heads}; it must divide the"
                f" {self.value_heads} value heads"
            )

    def make_layer(self, width: int, activation: str, eps: float, dtype: Any) -> GatedDeltaNet:
        return GatedDeltaNet(self, width, activation, eps, dtype)


class GatedDeltaNet(RecurrentLayer):
    """Projections, convolution, gated delta rule, gated norm."""

    def setup(self) -> None:
        self.make_parameters()
        self.rate = Dense(self.shape.value_heads, self.dtype)
        self.norm = RMSNorm(self.eps)

    def project(self, x: jax.Array) -> Projections:
        inputs = jnp.concatenate([self.q(x), self.k(x), self.v(x)], axis=-1)
        _, decays = self.compute_steps(x)
        rates = jax.nn.sigmoid(self.rate(x)).astype(jnp.float32)
        return Projections(inputs, decays.swapaxes(1, 2), rates.swapaxes(1, 2))

    def make_inputs(self, convolved: jax.Array, given: Projections, slots: jax.Array) -> Inputs:
        """Splits convolved channels [B, T, C] into heads; queries and keys have length 1."""
        s = self.shape
        active = ACTIVATIONS[self.activation](convolved)
        q, k, v = jnp.split(active, (s.widths[0], 2 * s.widths[0]), axis=-1)
        q, k = (_normalize(split_heads(x, s.key_heads)) for x in (q, k))
        values = split_heads(v, s.value_heads)
        assert given.decays is not None
        return Inputs(q * s.d_key**-0.5, k, values, given.decays, given.rates)

    def read_out(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        gate = split_heads(self.gate(x), self.shape.value_heads).astype(jnp.float32)
        normed = self.norm(mixed.astype(self.dtype)).astype(jnp.float32)
        return self.o(merge_heads((normed * jax.nn.silu(gate)).astype(self.dtype)))


def _normalize(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + NORM_EPS)
