"""RG-LRU: a gated linear recurrence of single channels (De et al. 2024, "Griffin", section 2.4).

Each channel of W is a head of the recurrence with a key and a value of width 1, and its decay and
input gate are read from the convolved channels. In equation 4 the input of slot 0 is not scaled.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import ACTIVATIONS, Dense, merge_heads
from specjax.models.recurrence import Inputs
from specjax.models.recurrent_layers import Projections, Recurrence, RecurrentLayer

SHARPNESS = 8.0
"""c of equation 3: decays are powers of up to this exponent."""


@dataclasses.dataclass(frozen=True)
class RgLru(Recurrence):
    """Shape of a layer with RG-LRU: W value heads of width 1, one key of width 1."""

    blocks: int = 1  # of the gates' matrices

    def __post_init__(self) -> None:
        if self.value_heads % self.blocks:
            raise ValueError(
                f"lru_width is {self.value_heads}; it must be divisible by the"
                f" {self.blocks} attention heads"
            )

    @property
    def channels(self) -> int:
        """Only inputs are convolved."""
        return self.value_heads

    def make_layer(self, width: int, activation: str, eps: float, dtype: Any) -> RgLruBlock:
        return RgLruBlock(self, width, activation, eps, dtype)


class BlockDense(nn.Module):
    """A linear layer whose matrix has blocks [n, w, w] on its diagonal, in float32."""

    blocks: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Multiplies the blocks of x [B, T, n w]."""
        parts = x.reshape(*x.shape[:-1], self.blocks, -1)
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=0)
        shape = self.blocks, parts.shape[-1], parts.shape[-1]
        weight = self.param("weight", init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, shape[:2], jnp.float32)
        made = jnp.einsum("btnw,nwv->btnv", parts, weight.astype(jnp.float32))
        return (made + bias.astype(jnp.float32)).reshape(x.shape)


class RgLruBlock(RecurrentLayer):
    """Projections, convolution, RG-LRU; a branch of its own gates the output."""

    def setup(self) -> None:
        s = self.shape
        self.v, self.gate = (Dense(s.value_heads, self.dtype, bias=True) for _ in range(2))
        self.o = Dense(self.width, self.dtype, bias=True)
        self.make_taps(bias=True)
        init = nn.initializers.uniform(1.0)
        self.log_speed = self.param("log_speed", init, (s.value_heads,), jnp.float32)
        self.input_gate, self.decay_gate = BlockDense(s.blocks), BlockDense(s.blocks)

    def project(self, x: jax.Array) -> Projections:
        return Projections(self.v(x))

    def make_inputs(self, convolved: jax.Array, given: Projections, slots: jax.Array) -> Inputs:
        x = convolved + self.taps_bias.astype(jnp.float32)
        speed = SHARPNESS * jax.nn.softplus(self.log_speed.astype(jnp.float32))
        decays = -speed * jax.nn.sigmoid(self.decay_gate(x))
        scale = jnp.where(slots[..., None] == 0, 1.0, jnp.sqrt(-jnp.expm1(2.0 * decays)))
        values = (x * jax.nn.sigmoid(self.input_gate(x)) * scale).swapaxes(1, 2)[..., None]
        ones = jnp.ones((len(x), 1, x.shape[1], 1), jnp.float32)
        return Inputs(ones, ones, values, decays.swapaxes(1, 2), None)

    def read_out(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        branch = ACTIVATIONS[self.activation](self.gate(x))
        return self.o(merge_heads(mixed).astype(self.dtype) * branch)
