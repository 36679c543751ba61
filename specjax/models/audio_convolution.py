"""Convolutions over frames of audio, before the encoder of a speech model."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp


class AudioConvolution(nn.Module):
    """A convolution over frames [B, P, M] with `padding` zeros on both sides."""

    features: int
    width: int
    stride: int
    padding: int = 0
    bias: bool = True
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        kernel = self.param("kernel", init, (self.width, x.shape[-1], self.features), jnp.float32)
        made = convolve(x, kernel, self.stride, self.padding, self.dtype)
        if not self.bias:
            return made
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return made + bias.astype(self.dtype)


def convolve(
    x: jax.Array, kernel: jax.Array, stride: int, padding: int, dtype: jnp.dtype
) -> jax.Array:
    """Convolves x [B, P, M] with a kernel [W, M, D]: [B, P', D] of a dtype."""
    return jax.lax.conv_general_dilated(
        x.astype(dtype),
        kernel.astype(dtype),
        (stride,),
        [(padding, padding)],
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
