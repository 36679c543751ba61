"""Attention of each token to its neighborhood, computed in blocks of the text.

Ainslie et al., "LongT5" (2022), section 3.1: queries of a block attend to the keys of that block
and of the two next to it, so work and memory grow with the text's length and not with its square.
All queries may attend to further, global keys in the same softmax. N blocks of W tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float32, Int32

from specjax.models.attention import WHOLE_SCORES, Bias, merge_attention
from specjax.models.layers import MASKED

Keys = tuple[jax.Array, jax.Array, Bias]
"""Keys and values [B, H, G, d] of all queries, with their bias."""


class NearBias(struct.PyTreeNode):
    """Bias of the keys near a query, of texts of several lengths."""

    near: Float32[Array, "#H W 3*W"] | Float32[Array, "#H W W"]
    """By distance (`compute_distances`), with their mask; [H, W, W]: of keys of the own block."""
    length: Int32[Array, " B"]


def compute_distances(width: int) -> np.ndarray:
    """Computes distances `key - query` [W, 3 * W] of a block's queries and the keys they reach."""
    return np.arange(3 * width) - width - np.arange(width)[:, None]


def mask_distances(width: int, reach: int) -> np.ndarray:
    """Builds the additive mask [1, W, 3 * W] of keys farther from a query than `reach`."""
    return np.where(np.abs(compute_distances(width)) > reach, MASKED, 0.0).astype(np.float32)[None]


def attend_locally(
    q: Float[Array, "B H S d"],
    k: Float[Array, "B H S d"],
    v: Float[Array, "B H S d"],
    bias: NearBias,
    others: Sequence[Keys] = (),
    first: int = 0,
) -> Float[Array, "B H S d"]:
    """Attends q [B, H, S, d] to the keys near them from slot `first` on, and to `others`."""
    size, (width, keys) = q.shape[2], bias.near.shape[1:]
    count, before = -(-size // width), (keys - width) // 2
    key, value = (_split_blocks(x, count, width) for x in (k, v))
    if before:
        key, value = _add_neighbors(key), _add_neighbors(value)

    def attend_block(block: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> jax.Array:
        number, q, k, v = block
        slots = number * width - before + jnp.arange(keys)
        outside = (slots < first) | (slots >= bias.length[:, None])
        near = bias.near + jnp.where(outside, MASKED, 0.0).astype(jnp.float32)[:, None, None]
        more = [(k, v, at.tile(number * width, width, 0, k.shape[2])) for k, v, at in others]
        return merge_attention(q, [(k, v, near), *more])

    scores = width * (keys + sum(k.shape[2] for k, _, _ in others))
    blocks = jnp.arange(count), _split_blocks(q, count, width), key, value
    at_once = max(1, WHOLE_SCORES // scores)
    if at_once >= count:
        made = jax.vmap(attend_block)(blocks)
    else:
        made = jax.lax.map(jax.checkpoint(attend_block), blocks, batch_size=at_once)
    return jnp.moveaxis(made, 0, 2).reshape(*q.shape[:2], count * width, -1)[:, :, :size]


def _split_blocks(x: jax.Array, count: int, width: int) -> Float[Array, "N B H W d"]:
    """Splits x [B, H, S, d], padded with zeros, into blocks."""
    padded = jnp.pad(x, ((0, 0), (0, 0), (0, count * width - x.shape[2]), (0, 0)))
    return jnp.moveaxis(padded.reshape(*x.shape[:2], count, width, -1), 2, 0)


def _add_neighbors(blocks: Float[Array, "N B H W d"]) -> Float[Array, "N B H 3*W d"]:
    """Puts the blocks before and after next to each block, zeros beyond the first and last."""
    padded = jnp.pad(blocks, ((1, 1), (0, 0), (0, 0), (0, 0), (0, 0)))
    return jnp.concatenate([padded[:-2], padded[1:-1], padded[2:]], axis=3)
