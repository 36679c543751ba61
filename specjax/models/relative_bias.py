"""T5's bias of relative positions: one learned number for each bucket of distances and head."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.models.layers import Tree, key_mask, tree_mask, tree_slots


def relative_bucket(
    distance: np.ndarray, bidirectional: bool, buckets: int, max_distance: int
) -> np.ndarray:
    """Bucket of each relative position `key - query` (Raffel et al., section 2.1).

    Half of the buckets hold exact small distances, the rest grow logarithmically up to
    `max_distance`; a bidirectional stack keeps separate buckets for keys after the query. Computed
    on the host in float32, as every published checkpoint was trained with.
    """
    base = np.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        base = np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    scale = np.float32(np.log(max_distance / exact))
    large = exact + (ratio / scale * np.float32(buckets - exact)).astype(np.int32)
    return base + np.where(distance < exact, distance, np.minimum(large, buckets - 1))


class RelativeBias(nn.Module):
    """The learned bias of each (bucket, head), shared by the layers of one stack."""

    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool

    def setup(self) -> None:
        shape = (self.buckets, self.heads)
        self.table = self.param("table", nn.initializers.normal(0.1), shape, jnp.float32)

    def __call__(self, distance: np.ndarray) -> jax.Array:
        """Bias [H, *distance.shape] for host-known relative positions `key - query`."""
        bucket = relative_bucket(distance, self.bidirectional, self.buckets, self.max_distance)
        return jnp.moveaxis(self.table[bucket], -1, 0)


FEW = 16
"""Most queries whose rows are cut from one band on a TPU."""


def bias_rows(table: jax.Array, start: jax.Array, count: int, keys: int | None = None) -> jax.Array:
    """Bias [B, H, T, C] of queries at `start + t` over all C slots, or over the first `keys`.

    `table[:, C - 1 + distance]` is the bias (or mask) of relative position `key - query`; the row
    of a query at position p is therefore the contiguous slice that begins at `C - 1 - p`: one
    slice per row instead of a gather of single numbers. On a TPU several such slices become a loop,
    of which each turn takes as long as a small kernel: there few rows are cut from one slice.
    """
    by_row = functools.partial(_row_by_row, count=count, keys=keys)
    if not 1 < count <= FEW:
        return by_row(table, start)
    from_band = functools.partial(_from_a_band, count=count, keys=keys)
    return jax.lax.platform_dependent(table, start, tpu=from_band, default=by_row)


def _row_by_row(table: jax.Array, start: jax.Array, count: int, keys: int | None) -> jax.Array:
    capacity = table.shape[1] // 2
    position = start[:, None] + jnp.arange(count)

    def row(p: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(table, capacity - 1 - p, keys or capacity, axis=1)

    return jax.vmap(jax.vmap(row, out_axes=1))(position)


def _from_a_band(table: jax.Array, start: jax.Array, count: int, keys: int | None) -> jax.Array:
    """The rows as parts of what all of a text's queries look at, each one place before the last."""
    capacity, more = table.shape[1] // 2, count - 1
    keys = keys or capacity
    table = jnp.pad(table, ((0, 0), (more, 0)))  # what comes before is seen by none within C

    def band(p: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(table, capacity - 1 - p, keys + more, axis=1)

    bands = jax.vmap(band)(start)
    rows = [bands[:, :, more - t : more - t + keys] for t in range(count)]
    return jnp.stack(rows, axis=2)


class RelativeBiasOf(struct.PyTreeNode):
    """The bias of `bias_rows`, made for some queries and keys at a time (`attention.Bias`)."""

    table: jax.Array  # [H, 2 * C]
    start: jax.Array  # [B] position of the first query
    length: jax.Array | None = None  # [B] keys that are seen; None: the table hides what is not

    def tile(
        self, query: jax.Array | int, queries: int, key: jax.Array | int, keys: int
    ) -> jax.Array:
        bias = bias_rows(self.table, self.start + (query - key), queries, keys)
        return bias if self.length is None else bias + key_mask(self.length - key, keys)


def tree_bias(table: jax.Array, tree: Tree, start: jax.Array) -> jax.Array:
    """Bias [B, H, T, C] of the fed tokens of a tree over all C slots.

    T5's relative bias is that of positions, not of slots: a gather from the same `table`, whose
    last slot of no distance is `C - 1`.
    """
    capacity = table.shape[1] // 2
    slots = jnp.arange(capacity)
    at, _ = tree_slots(tree, start, slots)
    fed = tree[0][:, -tree[1].shape[1] :]
    distance = jnp.minimum(at[:, None] - fed[..., None], 0)
    bias = jnp.moveaxis(table[:, capacity - 1 + distance], 0, 1)
    return bias + tree_mask(tree, start, slots)
