"""Which tokens a block of drafted places attends to, in training and in a decode.

Places see the text before their anchor and their own block: all of it, or where a layer is causal
the places up to their own (JetSpec, arXiv 2606.18394). With a window they see the near tokens only.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from specjax.models.attention import AnyBias, of_call, of_tree
from specjax.models.layers import MASKED, causal_mask, key_mask
from specjax.models.positions import RelativeBiasOf, bias_rows


def see_block(
    start: jax.Array, size: int, slots: int, table: jax.Array | None, causal: bool, window: int
) -> AnyBias:
    """The mask of a block of `size` places from slot `start` [B] on, over a cache of so many slots.

    `table` [H, 2 * C] is a bias by distance, as of `bias_rows`.
    """
    if table is not None and not (causal or window):
        return of_call(RelativeBiasOf(table, start, start + size), start, size, slots)
    position = start[:, None] + jnp.arange(size)
    if causal:
        mask = causal_mask(position, jnp.arange(slots), window)
    else:
        mask = jnp.broadcast_to(key_mask(start + size, slots), (len(start), 1, size, slots))
        if window:
            far = position[..., None] - jnp.arange(slots) >= window
            mask = jnp.where(far[:, None], MASKED, mask)
    return of_tree(mask if table is None else mask + bias_rows(table, start, size), start)


class BlocksBias(struct.PyTreeNode):
    """Tokens of blocks see the text before their anchor, and their own block (`attention.Bias`).

    Keys are the T tokens of the text and then those of all blocks.
    """

    anchors: jax.Array  # [B, A] position of the first token of each block
    table: jax.Array | None  # [H, 2 * C] bias by distance, as of `bias_rows`; None: there is none
    text: int = struct.field(pytree_node=False)  # T
    size: int = struct.field(pytree_node=False)  # N
    causal: bool = struct.field(pytree_node=False, default=False)
    window: int = struct.field(pytree_node=False, default=0)  # keys that are seen; 0: all

    def tile(
        self, query: jax.Array | int, queries: int, key: jax.Array | int, keys: int
    ) -> jax.Array:
        block, position = self._placed(query + jnp.arange(queries))
        key = key + jnp.arange(keys)
        own, place = self._placed(key - self.text)
        anchor = self._anchor(block)
        in_text = key < self.text
        place = jnp.where(in_text, key, place)
        seen = jnp.where(in_text, key < anchor[..., None], own == block[:, None])
        if self.causal:
            seen &= in_text | (place[:, None] <= position[..., None])
        if self.window:
            seen &= position[..., None] - place[:, None] < self.window
        bias = jnp.where(seen, 0.0, MASKED).astype(jnp.float32)[:, None]
        if self.table is None:
            return bias
        capacity = self.table.shape[1] // 2
        distance = place[:, None] - position[..., None]
        row = jnp.clip(capacity - 1 + distance, 0, 2 * capacity - 1)
        return bias + jnp.moveaxis(self.table[:, row], 0, 1)

    def _placed(self, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The block [Q] of tokens [Q] of blocks, and their positions [B, Q] in the text."""
        block = token // self.size
        return block, self._anchor(block) + token % self.size

    def _anchor(self, block: jax.Array) -> jax.Array:
        return jnp.take(self.anchors, block, axis=1, mode="clip")
