"""Causal depthwise convolutions over few tokens, along chains and along paths of a tree.

    y_t = sum_k taps[:, k] * x of the token that is K - 1 - k before t on its path

K taps and C channels, added in float32. A convolution reaches K - 1 tokens before those that are
fed.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32


def convolve_chain(
    before: Float[Array, "B R C"], inputs: Float[Array, "B T C"], taps: Float32[Array, "C K"]
) -> Float32[Array, "B T C"]:
    """Convolves inputs [B, T, C] after the R = K - 1 inputs `before`."""
    held, fed = jnp.concatenate([before, inputs], axis=1), inputs.shape[1]
    parts = [held[:, tap : tap + fed] * taps[:, tap] for tap in range(taps.shape[1])]
    return functools.reduce(jnp.add, parts)


def convolve_tree(
    before: Float[Array, "B R C"],
    inputs: Float[Array, "B N C"],
    taps: Float32[Array, "C K"],
    visible: Bool[Array, "B T N"],
) -> Float32[Array, "B T C"]:
    """Convolves the last T of N nodes of a tree, whose paths are `visible`, after `before`."""
    held = jnp.concatenate([before, inputs], axis=1)
    room = ((0, 0), (0, 0), (before.shape[1], 0))
    chosen = find_last(jnp.pad(visible, room, constant_values=True), taps.shape[1])
    # A product with ones and zeros: gathers of rows take several times as long on CPUs.
    exact = jax.lax.Precision.HIGHEST
    found = jnp.einsum("btkm,bmc->btkc", chosen.astype(held.dtype), held, precision=exact)
    return jnp.sum(found * taps.T, axis=2)


def find_last(visible: Bool[Array, "B T M"], count: int) -> Bool[Array, "B T {count} M"]:
    """Returns which slots are the last `count` visible ones of each token, in order."""
    seen = visible.astype(jnp.int32)
    later = jax.lax.cumsum(seen, axis=2, reverse=True) - seen
    distance = jnp.arange(count - 1, -1, -1)[:, None]
    return visible[:, :, None] & (later[:, :, None] == distance)
