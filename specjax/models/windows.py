"""Attention masks over plain and ring-buffer caches, with optional windows.

A window slides with the query, or is its chunk: then it begins at a multiple of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.attention import (
    AnyBias,
    CausalBias,
    make_cache_bias,
    make_call_bias,
    make_tree_bias,
)
from specjax.models.caches import KeysValues, Ring, get_held_slots
from specjax.models.layers import Tree, make_tree_mask


def make_layer_masks(
    windows: Sequence[int], own: Sequence[Any], mask: Callable[[Any, int], AnyBias]
) -> list[AnyBias]:
    """Builds each layer's mask from its cache and window.

    Layers with the same window have caches of the same size and share the mask.
    """
    caches = dict(zip(windows, own, strict=True))
    made = {window: mask(cache, window) for window, cache in caches.items()}
    return [made[window] for window in windows]


def make_step_mask(
    own: KeysValues,
    window: int,
    start: jax.Array,
    fed: int,
    tree: Tree | None,
    chunked: bool = False,
) -> AnyBias:
    """Builds the mask of `fed` tokens at slots from `start` [B], written to the cache `own`.

    Raises:
      ValueError: if a ring has too few slots.
    """
    ring = isinstance(own, Ring)
    if ring:
        _check_room(own, window, fed if tree is None else tree[0].shape[1])
    slots = get_held_slots(own, start + fed)
    if tree is not None:
        return make_tree_bias(make_tree_mask(tree, start, slots, window, chunked), start)
    bias = CausalBias(start, window, slots if ring else None, chunked)
    # A ring's slots are not in order, so no range of them can be skipped.
    return make_call_bias(bias, start, fed, own[0].shape[2], 0 if ring else window)


def make_chunk_mask(
    own: KeysValues,
    window: int,
    start: jax.Array,
    fed: int,
    length: jax.Array,
    chunked: bool = False,
) -> AnyBias:
    """Builds the mask of a chunk of `fed` prompt tokens over the keys of `caches.read_on`."""
    if not isinstance(own, Ring):
        bias = CausalBias(start, window, chunked=chunked)
        return make_cache_bias(bias, start, fed, window)
    part = start[:, None] + jnp.arange(fed)
    slots = jnp.concatenate([part, get_held_slots(own, jnp.minimum(start, length))], axis=1)
    return make_cache_bias(CausalBias(start, window, slots, chunked), start, fed)


def _check_room(own: Ring, window: int, fed: int) -> None:
    size = own.keys.shape[2]
    if fed > size - window + 1:
        raise ValueError(
            f"{fed} tokens are fed at once; a ring of {size} slots with a window of {window}"
            f" has room for {size - window + 1}"
        )
