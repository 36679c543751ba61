"""Mamba-2: state space layers with one decay for each head (Dao and Gu 2024).

The dual form of their section 3: a token's value is its step size times x, its key is B and its
query C, which G groups of heads share; D x goes past the recurrence. The output of all heads is
gated and then normed. E is the width of a state's key, F that of a head.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import ACTIVATIONS, merge_heads, split_heads
from specjax.models.norms import RMSNorm
from specjax.models.recurrence import Inputs
from specjax.models.recurrent_layers import Projections, Recurrence, RecurrentLayer


@dataclasses.dataclass(frozen=True)
class Mamba2(Recurrence):
    """Shape of a Mamba-2 layer."""

    taps_bias: bool = True  # of the convolution
    bias: bool = False  # of the projections
    activation: str = ""  # of the convolution; empty: the model's
    least_step: float = 0.0  # of tokens of prompts

    def __post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"mamba_n_groups is {self.key_heads}; it must divide the {self.value_heads} heads"
            )

    def make_layer(self, width: int, activation: str, eps: float, dtype: Any) -> Mamba2Mixer:
        return Mamba2Mixer(self, width, self.activation or activation, eps, dtype)


class Mamba2Mixer(RecurrentLayer):
    """Projections, convolution, recurrence with skip, gated norm of each group."""

    def setup(self) -> None:
        s = self.shape
        self.make_parameters(s.bias, s.taps_bias)
        self.skip = self.param("skip", nn.initializers.ones, (s.value_heads,), jnp.float32)
        self.norm = RMSNorm(self.eps, groups=s.key_heads)

    def project(self, x: jax.Array) -> Projections:
        return self._project(x, 0.0)

    def project_prompt(self, x: jax.Array) -> Projections:
        return self._project(x, self.shape.least_step)

    def _project(self, x: jax.Array, least_step: float) -> Projections:
        inputs = jnp.concatenate([self.v(x), self.k(x), self.q(x)], axis=-1)
        steps, decays = self.compute_steps(x, least_step)
        return Projections(inputs, decays.swapaxes(1, 2), steps.swapaxes(1, 2))

    def make_inputs(self, convolved: jax.Array, given: Projections, slots: jax.Array) -> Inputs:
        s = self.shape
        assert given.decays is not None and given.rates is not None
        values, keys, queries = self._split(convolved)
        keys, queries = (split_heads(x, s.key_heads) for x in (keys, queries))
        values = split_heads(values, s.value_heads) * given.rates[..., None]
        return Inputs(queries, keys, values, given.decays, None)

    def add_skip(self, outputs: jax.Array, convolved: jax.Array) -> jax.Array:
        skipped = split_heads(self._split(convolved)[0], self.shape.value_heads)
        return outputs + self.skip.astype(jnp.float32)[:, None, None] * skipped

    def read_out(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        gated = merge_heads(mixed) * jax.nn.silu(self.gate(x).astype(jnp.float32))
        return self.o(self.norm(gated).astype(self.dtype))

    def _split(self, convolved: jax.Array) -> list[jax.Array]:
        """Splits channels [B, T, C] into those of x, B and C, after bias and activation."""
        s = self.shape
        if s.taps_bias:
            convolved = convolved + self.taps_bias.astype(jnp.float32)
        _, keys, values = s.widths
        return jnp.split(ACTIVATIONS[self.activation](convolved), (values, values + keys), axis=-1)
