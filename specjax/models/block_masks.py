"""Attention masks of drafted blocks, in training and in decoding.

A token of a block attends to the text before its anchor and to its block: to the whole block, or in
a causal layer up to itself (JetSpec, arXiv 2606.18394). A window limits the distance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from specjax.models.attention import AnyBias, make_call_bias, make_tree_bias
from specjax.models.layers import MASKED, make_causal_mask, make_key_mask
from specjax.models.positions import RelativeBiasOf, compute_bias_rows


def make_block_mask(
    start: jax.Array, size: int, slots: int, table: jax.Array | None, causal: bool, window: int
) -> AnyBias:
    """Builds the mask of a block of `size` tokens from slot `start` [B], over a cache.

    `table` [H, 2 * C] is a bias by distance, as of `compute_bias_rows`.
    """
    if table is not None and not (causal or window):
        return make_call_bias(RelativeBiasOf(table, start, start + size), start, size, slots)
    position = start[:, None] + jnp.arange(size)
    if causal:
        mask = make_causal_mask(position, jnp.arange(slots), window)
    else:
        mask = jnp.broadcast_to(make_key_mask(start + size, slots), (len(start), 1, size, slots))
        if window:
            far = position[..., None] - jnp.arange(slots) >= window
            mask = jnp.where(far[:, None], MASKED, mask)
    return make_tree_bias(
        mask if table is None else mask + compute_bias_rows(table, start, size), start
    )


class BlocksBias(struct.PyTreeNode):
    """Mask of many blocks: each attends to the text before its anchor, and to itself.

    Keys are the T tokens of the text and then those of all blocks.
    """

    anchors: jax.Array  # [B, A] position of the first token of each block
    table: jax.Array | None  # [H, 2 * C] bias by distance, as of `compute_bias_rows`
    text: int = struct.field(pytree_node=False)  # T
    size: int = struct.field(pytree_node=False)  # N
    causal: bool = struct.field(pytree_node=False, default=False)
    window: int = struct.field(pytree_node=False, default=0)  # visible keys; 0: all

    def tile(
        self, query: jax.Array | int, queries: int, key: jax.Array | int, keys: int
    ) -> jax.Array:
        block, position = self._locate(query + jnp.arange(queries))
        key = key + jnp.arange(keys)
        own, place = self._locate(key - self.text)
        anchor = self._anchor(block)
        in_text = key < self.text
        place = jnp.where(in_text, key, place)
        visible = jnp.where(in_text, key < anchor[..., None], own == block[:, None])
        if self.causal:
            visible &= in_text | (place[:, None] <= position[..., None])
        if self.window:
            visible &= position[..., None] - place[:, None] < self.window
        bias = jnp.where(visible, 0.0, MASKED).astype(jnp.float32)[:, None]
        if self.table is None:
            return bias
        capacity = self.table.shape[1] // 2
        distance = place[:, None] - position[..., None]
        row = jnp.clip(capacity - 1 + distance, 0, 2 * capacity - 1)
        return bias + jnp.moveaxis(self.table[:, row], 0, 1)

    def _locate(self, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the block [Q] of tokens [Q], and their positions [B, Q] in the text."""
        block = token // self.size
        return block, self._anchor(block) + token % self.size

    def _anchor(self, block: jax.Array) -> jax.Array:
        return jnp.take(self.anchors, block, axis=1, mode="clip")
