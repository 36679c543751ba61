"""Convolutions over frames of audio, before the encoder of a speech model."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp


class AudioConvolution(nn.Module):
    """A convolution over frames [B, P, M] with `padding` zeros on both sides.

    Frames may be in frequencies [B, P, F, M], over which it has the same width, stride and padding.
    With as many `groups` as channels M it is depthwise.
    """

    features: int
    width: int
    stride: int
    padding: int = 0
    bias: bool = True
    dtype: jnp.dtype = jnp.float32
    groups: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        channels = x.shape[-1] // self.groups, self.features
        shape = *[self.width] * (x.ndim - 2), *channels
        kernel = self.param("kernel", init, shape, jnp.float32)
        made = convolve(x, kernel, self.stride, self.padding, self.dtype, self.groups)
        if not self.bias:
            return made
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return made + bias.astype(self.dtype)


LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "WHIO", "NHWC")}
"""Order of the axes of inputs, kernels and outputs, by the axes that are convolved."""


def convolve(
    x: jax.Array, kernel: jax.Array, stride: int, padding: int, dtype: jnp.dtype, groups: int = 1
) -> jax.Array:
    """Convolves x [B, P, M] with a kernel [W, M / groups, D]: [B, P', D] of a dtype."""
    axes = x.ndim - 2
    return jax.lax.conv_general_dilated(
        x.astype(dtype),
        kernel.astype(dtype),
        (stride,) * axes,
        [(padding, padding)] * axes,
        dimension_numbers=LAYOUTS[axes],
        feature_group_count=groups,
    )
