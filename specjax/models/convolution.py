"""Dynamic convolution over a block's tokens, around attention and feed-forward (DFlash 2).

With x the normed input of a sublayer, its coefficients c = W x are [2, taps, groups]: side 0 is
applied to the input of the sublayer, side 1 to its output,

    y_t = sum_o (base[side, o] + c_t[side, o, group]) * x_{t - o},   x = 0 before the anchor,

so that a token depends on earlier tokens of its block only. A group is
a contiguous run of channels.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import Dense


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Shape of a convolution."""

    taps: int = 2
    group: int = 16  # channels that share a coefficient


def _identity(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Initializes kernels [2, taps, D] to the identity."""
    return jnp.zeros(shape, dtype).at[:, 0].set(1.0)


class DynamicConvolution(nn.Module):
    """Convolutions of a sublayer's input and output, initialized to the identity."""

    convolution: Convolution
    width: int
    dtype: Any

    def setup(self) -> None:
        c = self.convolution
        self.base = self.param("base", _identity, (2, c.taps, self.width), jnp.float32)
        count = 2 * c.taps * self.width // c.group
        self.coefficients = Dense(count, self.dtype, init_scale=0.0)

    def kernels(self, x: jax.Array) -> jax.Array:
        """Computes kernels [..., T, 2, taps, D] from the sublayer's normed input x [..., T, D]."""
        c = self.convolution
        own = self.coefficients(x).reshape(*x.shape[:-1], 2, c.taps, -1)
        return self.base.astype(self.dtype) + jnp.repeat(own, c.group, axis=-1)

    def __call__(self, x: jax.Array, kernels: jax.Array, side: int, size: int) -> jax.Array:
        """Convolves x [B, T, D] within each block of `size` tokens."""
        rows, places, width = x.shape
        blocks = x.reshape(rows, places // size, size, width)
        total = jnp.zeros_like(blocks)
        for tap in range(self.convolution.taps):
            shifted = jnp.pad(blocks, ((0, 0), (0, 0), (tap, 0), (0, 0)))[:, :, :size]
            total += kernels[..., side, tap, :].reshape(blocks.shape) * shifted
        return total.reshape(x.shape)
