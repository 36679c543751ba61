"""Building blocks shared by the model families: projections, norms, attention, cache writes.

Layout choices live here because only whole programs can judge them (docs/design.md): weights are
`[in, out]` and applied as `x @ w`, caches are head-major `[B, H, C, d]`.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

MASKED = -1e9
"""Added to the score of a position that must not be attended; finite, so that no row is NaN."""


class Dense(nn.Module):
    """`x @ w` without bias; parameters stay in `param_dtype`, arithmetic runs in `dtype`."""

    features: int
    dtype: jnp.dtype = jnp.float32
    init_scale: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = nn.initializers.variance_scaling(self.init_scale, "fan_in", "normal")
        kernel = self.param("kernel", init, (x.shape[-1], self.features), jnp.float32)
        return x.astype(self.dtype) @ kernel.astype(self.dtype)


class RMSNorm(nn.Module):
    """Scale by the root mean square, computed in float32 (T5 and Llama norm, no bias)."""

    eps: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        x32 = x.astype(jnp.float32)
        mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
        return (x32 * jax.lax.rsqrt(mean_square + self.eps) * scale).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
}


class FeedForward(nn.Module):
    """Two-matrix or gated (three-matrix) feed-forward network."""

    width: int
    activation: str
    gated: bool
    dtype: jnp.dtype = jnp.float32
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        act = ACTIVATIONS[self.activation]
        hidden = act(Dense(self.width, self.dtype, name="gate" if self.gated else "up")(x))
        if self.gated:
            hidden = hidden * Dense(self.width, self.dtype, name="up")(x)
        hidden = nn.Dropout(self.dropout)(hidden, deterministic=deterministic)
        return Dense(x.shape[-1], self.dtype, name="down")(hidden)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[B, T, H*d] -> head-major [B, H, T, d]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def merge_heads(x: jax.Array) -> jax.Array:
    """[B, H, T, d] -> [B, T, H*d]."""
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array) -> jax.Array:
    """Softmax attention of q [B, H, T, d] over k, v [B, H, C, d]; softmax in float32.

    Scores are not scaled: T5 keeps the scale in its weights, others scale `q` first. `bias` is
    broadcast to [B, H, T, C] and carries the mask.
    """
    scores = jnp.einsum("bhtd,bhcd->bhtc", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores + bias, axis=-1).astype(v.dtype)
    return jnp.einsum("bhtc,bhcd->bhtd", weights, v)


def write(cache: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
    """Writes new [B, H, T, d] into cache [B, H, C, d] from each row's own `start` [B] on.

    Positions at or beyond the capacity are dropped; a dynamic-update-slice would clamp and
    overwrite trusted slots instead.
    """
    rows = jnp.arange(cache.shape[0])[:, None]
    slots = start[:, None] + jnp.arange(new.shape[2])
    # Advanced indices around a slice put their own axes first: the update is [B, T, H, d].
    return cache.at[rows, :, slots].set(new.swapaxes(1, 2).astype(cache.dtype), mode="drop")


def key_mask(length: jax.Array, size: int) -> jax.Array:
    """Additive mask [B, 1, 1, size] that hides keys at and beyond each row's `length` [B]."""
    hidden = jnp.arange(size) >= length[:, None]
    return jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None, None, :]
