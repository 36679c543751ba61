"""Masks of layers over caches, plain ones and rings, where a layer may see a window only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, CausalBias, of_cache, of_call, of_tree
from specjax.models.caches import KeysValues, Ring, held_slots
from specjax.models.layers import Tree, tree_mask


def of_layers(
    windows: Sequence[int], own: Sequence[Any], mask: Callable[[Any, int], AnyBias]
) -> list[AnyBias]:
    """Each layer's mask, made of its cache and window.

    Layers with the same window have caches of one size, and share the mask.
    """
    caches = dict(zip(windows, own, strict=True))
    made = {window: mask(cache, window) for window, cache in caches.items()}
    return [made[window] for window in windows]


def of_fed(own: KeysValues, window: int, start: jax.Array, fed: int, tree: Tree | None) -> AnyBias:
    """The mask of `fed` tokens from slot `start` [B] on, once they are written to the cache `own`.

    Raises:
      ValueError: when a ring has no room for so many.
    """
    ring = isinstance(own, Ring)
    if ring:
        _check_room(own, window, fed if tree is None else tree[0].shape[1])
    slots = held_slots(own, start + fed)
    if tree is not None:
        return of_tree(tree_mask(tree, start, slots, window), start)
    bias = CausalBias(start, window, slots if ring else None)
    # A ring's places are in no order: none before the others can be left out.
    return of_call(bias, start, fed, own[0].shape[2], 0 if ring else window)


def of_part(own: KeysValues, window: int, start: jax.Array, fed: int, length: jax.Array) -> AnyBias:
    """The mask of `fed` tokens of prompts of `length` [B] over what `caches.read_on` gives."""
    if not isinstance(own, Ring):
        return of_cache(CausalBias(start, window), start, fed, window)
    part = start[:, None] + jnp.arange(fed)
    slots = jnp.concatenate([part, held_slots(own, jnp.minimum(start, length))], axis=1)
    return of_cache(CausalBias(start, window, slots), start, fed)


def _check_room(own: Ring, window: int, fed: int) -> None:
    size = own.keys.shape[2]
    if fed > size - window + 1:
        raise ValueError(
            f"{fed} tokens are fed at once; a ring of {size} slots behind a window of {window} has"
            f" room for {size - window + 1}"
        )
