"""Norms of states, of heads, and of all heads together, computed in float32."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32


def normalize_mean_square(x: Float[Array, "... D"], eps: float) -> Float32[Array, "... D"]:
    """Scales x [..., D] to a root mean square of 1, in float32."""
    x32 = x.astype(jnp.float32)
    return x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)


class RMSNorm(nn.Module):
    """Scale by the root mean square, computed in float32 (T5 and Llama norm, no bias)."""

    eps: float = 1e-6
    unit_offset: bool = False  # the parameter is the scale minus 1 (Gemma)
    groups: int = 1  # equal parts of x, each with its own root mean square (Mamba-2)

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        init = nn.initializers.zeros if self.unit_offset else nn.initializers.ones
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32)
        if self.unit_offset:
            # In float32: next to 1, half precision has too few digits for the parameter.
            scale = 1.0 + scale.astype(jnp.float32)
        return (self._normalize(x) * scale).astype(x.dtype)

    def _normalize(self, x: Float[Array, "... D"]) -> Float32[Array, "... D"]:
        if self.groups == 1:
            return normalize_mean_square(x, self.eps)
        parts = x.reshape(*x.shape[:-1], self.groups, -1)
        return normalize_mean_square(parts, self.eps).reshape(x.shape)


class BatchNorm(nn.Module):
    """Scale and bias after the mean and variance that training has left, computed in float32."""

    eps: float = 1e-5

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        zeros, ones, shape = nn.initializers.zeros, nn.initializers.ones, (x.shape[-1],)
        mean, bias = (self.param(name, zeros, shape, jnp.float32) for name in ("mean", "bias"))
        variance, scale = (
            self.param(name, ones, shape, jnp.float32) for name in ("variance", "scale")
        )
        factor = scale * jax.lax.rsqrt(variance.astype(jnp.float32) + self.eps)
        return ((x.astype(jnp.float32) - mean) * factor + bias).astype(x.dtype)


class LayerNorm(nn.Module):
    """Zero mean, unit variance, then scale and bias; computed in float32 (GPT-2's norm).

    Command R's norms have no bias, OLMo 1's neither scale nor bias. With `heads` x is [B, H, T, d],
    and each head has a scale and bias of its own.
    """

    eps: float = 1e-5
    has_scale: bool = True
    has_bias: bool = True
    heads: int = 0

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        centered = x.astype(jnp.float32) - jnp.mean(x, axis=-1, keepdims=True, dtype=jnp.float32)
        variance = jnp.mean(centered * centered, axis=-1, keepdims=True)
        made = centered * jax.lax.rsqrt(variance + self.eps)
        if self.has_scale:
            made = made * self._make_parameter("scale", nn.initializers.ones, x.shape[-1])
        if self.has_bias:
            made = made + self._make_parameter("bias", nn.initializers.zeros, x.shape[-1])
        return made.astype(x.dtype)

    def _make_parameter(self, name: str, init: Any, width: int) -> Float[Array, "... D"]:
        if not self.heads:
            return self.param(name, init, (width,), jnp.float32)
        return self.param(name, init, (self.heads, width), jnp.float32)[:, None]
