"""KV caches of a layer: plain caches and ring buffers.

Slots are numbered from 0 in the order in which tokens are fed. A plain cache stores slot s at index
s; a ring buffer of size R stores it at index s mod R, in place of slot s - R. The slots that a ring
holds follow from the number of tokens fed, so nothing else is stored, and rejecting tokens is free
as in a plain cache: a rejected slot s that is not yet overwritten counts as slot s - R.

This is correct for R = window + `ahead`, where `ahead` bounds the slots, from the first slot of a
later call on, that may already have been written. No slot inside a window is then overwritten, and
a rejected slot counts as one outside every window (`models/windows.py` masks it).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

KeysValues = tuple[Float[Array, "B H _ d"], Float[Array, "B H _ e"]]
"""Keys and values of one layer, head-major [B, H, C, d]; values of latent keys have no width."""

NEVER = 1 << 30
"""Slot number of an index that was never written: larger than any slot."""


class Ring(NamedTuple):
    """Ring-buffer KV cache: slot s is stored at index s mod R."""

    keys: Float[Array, "B H R d"]
    values: Float[Array, "B H R e"]


def compute_cache_size(capacity: int, window: int, ahead: int | None) -> tuple[int, bool]:
    """Returns the size of a layer's cache, and whether it is a ring, if that is smaller.

    `window` 0 is unlimited; with `ahead` None calls may begin at any slot.
    """
    if window and ahead is not None and window + ahead < capacity:
        return window + ahead, True
    return capacity, False


def make_empty_cache(
    like: jax.ShapeDtypeStruct, window: int, ahead: int | None, value_width: int | None = None
) -> KeysValues:
    """Creates a layer's cache for tokens with keys of shape `like` [B, H, C, d].

    Values are as wide, or of `value_width`.
    """
    rows, heads, capacity, width = like.shape
    size, ring = compute_cache_size(capacity, window, ahead)
    widths = width, width if value_width is None else value_width
    keys, values = (jnp.zeros((rows, heads, size, each), like.dtype) for each in widths)
    return Ring(keys, values) if ring else (keys, values)


def make_prompt_cache(
    new: KeysValues, length: Int[Array, " B"], capacity: int, window: int, ahead: int | None
) -> KeysValues:
    """Creates a layer's cache with keys and values `new` of prompts [B, P] of `length` [B]."""
    size, ring = compute_cache_size(capacity, window, ahead)
    if ring:
        nothing = Ring(*(jnp.zeros((*x.shape[:2], size, x.shape[3]), x.dtype) for x in new))
        return _fill_ring(nothing, new, jnp.zeros_like(length), length)
    room = ((0, 0), (0, 0), (0, capacity - new[0].shape[2]), (0, 0))
    return jnp.pad(new[0], room), jnp.pad(new[1], room)


def get_held_slots(own: KeysValues, end: Int[Array, " B"]) -> Int[Array, " C"] | Int[Array, "B C"]:
    """Returns the slot at each index of a cache, [C] or [B, C], after `end` [B] fed slots."""
    size = own[0].shape[2]
    return list_ring_slots(size, end) if isinstance(own, Ring) else jnp.arange(size)


def list_ring_slots(size: int, end: Int[Array, " B"]) -> Int[Array, "B {size}"]:
    """Returns the slot at each index of a ring of `size` after `end` [B] fed slots."""
    last = end[:, None] - 1
    slot = last - jnp.mod(last - jnp.arange(size), size)
    return jnp.where(slot < 0, NEVER, slot)


def write(
    cache: Float[Array, "B H C d"], new: Float[Array, "B H T d"], indices: Int[Array, "B T"]
) -> Float[Array, "B H C d"]:
    """Writes new [B, H, T, d] at indices `indices` [B, T] of cache [B, H, C, d].

    Indices beyond the capacity are dropped; a dynamic-update-slice would clamp them and overwrite
    valid slots.
    """
    rows = jnp.arange(cache.shape[0])[:, None]
    # Advanced indices around a slice put their own axes first: the update is [B, T, H, d].
    return cache.at[rows, :, indices].set(new.swapaxes(1, 2).astype(cache.dtype), mode="drop")


def update_cache(own: KeysValues, new: KeysValues, start: Int[Array, " B"]) -> KeysValues:
    """Writes `new` keys and values to slots from `start` [B] of a layer's cache."""
    indices = _get_indices(own, start[:, None] + jnp.arange(new[0].shape[2]))
    return _make_like(own, write(own[0], new[0], indices), write(own[1], new[1], indices))


def move_slots(own: KeysValues, start: Int[Array, " B"], path: Int[Array, "B N"]) -> KeysValues:
    """Moves the slots `start + path` [B, N] of a layer's cache to `start ..`."""
    kept = _get_indices(own, start[:, None] + path)[:, None, :, None]
    keys, values = (jnp.take_along_axis(cache, kept, axis=2, mode="clip") for cache in own)
    return update_cache(own, (keys, values), start)


def read_on(
    own: KeysValues, new: KeysValues, start: Int[Array, " B"], length: Int[Array, " B"]
) -> tuple[KeysValues, KeysValues]:
    """Returns keys and values that a prompt chunk attends to, and the updated cache.

    `new` are the keys and values of the prompt tokens from `start` [B]; prompts have `length` [B].
    Writing the chunk's last tokens to a ring would overwrite slots that its first tokens attend to,
    and padding must not overwrite tokens; so the chunk is concatenated with the ring before the
    update.
    """
    if not isinstance(own, Ring):
        own = update_cache(own, new, start)
        return own, own
    keys, values = (jnp.concatenate(pair, axis=2) for pair in zip(new, own, strict=True))
    return (keys, values), _fill_ring(own, new, start, length)


def _fill_ring(
    own: Ring, new: KeysValues, start: Int[Array, " B"], length: Int[Array, " B"]
) -> Ring:
    """Writes the last tokens of `new` that are not padding to the ring."""
    slots = get_held_slots(own, jnp.minimum(start + new[0].shape[2], length))
    return Ring(fill(own.keys, new[0], slots, start), fill(own.values, new[1], slots, start))


def fill(
    cache: Float[Array, "B H C d"],
    new: Float[Array, "B H T d"],
    slots: Int[Array, "B C"],
    start: Int[Array, " B"],
) -> Float[Array, "B H C d"]:
    """Replaces what a ring holds of `slots` [B, C] from `start` [B] on by new [B, H, T, d]."""
    is_new = (slots >= start[:, None])[:, None, :, None]
    index = jnp.clip(slots - start[:, None], 0, new.shape[2] - 1)[:, None, :, None]
    return jnp.where(is_new, jnp.take_along_axis(new, index, axis=2), cache)


def _get_indices(own: KeysValues, slots: Int[Array, "B N"]) -> Int[Array, "B N"]:
    """Returns the indices of `slots` in a layer's cache."""
    return jax.lax.rem(slots, own[0].shape[2]) if isinstance(own, Ring) else slots


def _make_like(
    own: KeysValues, keys: Float[Array, "B H C d"], values: Float[Array, "B H C e"]
) -> KeysValues:
    return Ring(keys, values) if isinstance(own, Ring) else (keys, values)
