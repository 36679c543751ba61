"""What a layer remembers: keys and values of every position, or of the last ones in a ring.

A model's slots are numbered from 0 on, in the order in which tokens are fed. A plain cache has slot
s at place s. A ring of R places has it at place s mod R, over that of slot s - R. Which slots it
holds follows from how many have been fed, so nothing is stored beside keys and values, and
rejecting tokens is as free as in a plain cache: a rejected slot s, not overwritten yet, is taken
for slot s - R.

Both are right as long as R is the layer's window and `ahead`: the slots, beyond the first that any
later call feeds, that may have been written. What a window still reaches is then never overwritten,
and what a rejected slot is taken for lies outside of every window (`models/windows.py` hides it).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

KeysValues = tuple[Float[Array, "B H _ d"], Float[Array, "B H _ d"]]
"""Keys and values of one layer, head-major [B, H, C, d]."""

NEVER = 1 << 30
"""The slot of a place that nothing was written to: later than any."""


class Ring(NamedTuple):
    """Keys and values of which slot s lies at place s mod R."""

    keys: Float[Array, "B H R d"]
    values: Float[Array, "B H R d"]


def cache_size(capacity: int, window: int, ahead: int | None) -> tuple[int, bool]:
    """Places of a layer's cache, and whether it is a ring: where that is the smaller one.

    `window` 0 sees all keys; `ahead` None says that calls may begin anywhere.
    """
    if window and ahead is not None and window + ahead < capacity:
        return window + ahead, True
    return capacity, False


def empty_cache(like: jax.ShapeDtypeStruct, window: int, ahead: int | None) -> KeysValues:
    """A layer's cache for as many tokens as `like` [B, H, C, d] has slots."""
    rows, heads, capacity, width = like.shape
    size, ring = cache_size(capacity, window, ahead)
    zeros = jnp.zeros((rows, heads, size, width), like.dtype)
    return Ring(zeros, zeros) if ring else (zeros, zeros)


def of_prompts(
    new: KeysValues, length: Int[Array, " B"], capacity: int, window: int, ahead: int | None
) -> KeysValues:
    """A layer's cache with keys and values `new` of whole prompts [B, P] of `length` [B]."""
    size, ring = cache_size(capacity, window, ahead)
    if ring:
        nothing = Ring(*(jnp.zeros((*x.shape[:2], size, x.shape[3]), x.dtype) for x in new))
        return _filled(nothing, new, jnp.zeros_like(length), length)
    room = ((0, 0), (0, 0), (0, capacity - new[0].shape[2]), (0, 0))
    return jnp.pad(new[0], room), jnp.pad(new[1], room)


def held_slots(own: KeysValues, end: Int[Array, " B"]) -> Int[Array, " C"] | Int[Array, "B C"]:
    """The slot at each place of a layer's cache, [C] or [B, C], once `end` [B] slots are fed."""
    size = own[0].shape[2]
    place = jnp.arange(size)
    if not isinstance(own, Ring):
        return place
    last = end[:, None] - 1
    slot = last - jnp.mod(last - place, size)
    return jnp.where(slot < 0, NEVER, slot)


def write(
    cache: Float[Array, "B H C d"], new: Float[Array, "B H T d"], places: Int[Array, "B T"]
) -> Float[Array, "B H C d"]:
    """Writes new [B, H, T, d] to places [B, T] of cache [B, H, C, d].

    What lies beyond the capacity is dropped; a dynamic-update-slice would clamp and overwrite
    trusted slots instead.
    """
    rows = jnp.arange(cache.shape[0])[:, None]
    # Advanced indices around a slice put their own axes first: the update is [B, T, H, d].
    return cache.at[rows, :, places].set(new.swapaxes(1, 2).astype(cache.dtype), mode="drop")


def update_cache(own: KeysValues, new: KeysValues, start: Int[Array, " B"]) -> KeysValues:
    """A layer's cache with `new` keys and values written to slots `start` [B] on."""
    places = _places(own, start[:, None] + jnp.arange(new[0].shape[2]))
    return _alike(own, write(own[0], new[0], places), write(own[1], new[1], places))


def move_slots(own: KeysValues, start: Int[Array, " B"], path: Int[Array, "B N"]) -> KeysValues:
    """A layer's cache with the slots `start + path` [B, N] moved to `start ..` on."""
    kept = _places(own, start[:, None] + path)[:, None, :, None]
    keys, values = (jnp.take_along_axis(cache, kept, axis=2, mode="clip") for cache in own)
    return update_cache(own, (keys, values), start)


def read_on(
    own: KeysValues, new: KeysValues, start: Int[Array, " B"], length: Int[Array, " B"]
) -> tuple[KeysValues, KeysValues]:
    """What a part of the prompts attends to, and the cache behind it.

    `new` are the keys and values of the tokens from `start` [B] on, of prompts of `length` [B]. A
    ring holds too little for the first of them once the last are written, and padding must not
    overwrite tokens: the part is attended to as it is, before what the ring holds.
    """
    if not isinstance(own, Ring):
        own = update_cache(own, new, start)
        return own, own
    keys, values = (jnp.concatenate(pair, axis=2) for pair in zip(new, own, strict=True))
    return (keys, values), _filled(own, new, start, length)


def _filled(own: Ring, new: KeysValues, start: Int[Array, " B"], length: Int[Array, " B"]) -> Ring:
    """The ring with the last of `new` that are no padding."""
    fed = new[0].shape[2]
    slot = held_slots(own, jnp.minimum(start + fed, length))
    is_new = (slot >= start[:, None])[:, None, :, None]
    index = jnp.clip(slot - start[:, None], 0, fed - 1)[:, None, :, None]

    def one(cache: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(is_new, jnp.take_along_axis(new, index, axis=2), cache)

    return Ring(one(own.keys, new[0]), one(own.values, new[1]))


def _places(own: KeysValues, slots: Int[Array, "B N"]) -> Int[Array, "B N"]:
    """Where a layer's cache has its `slots`."""
    return jax.lax.rem(slots, own[0].shape[2]) if isinstance(own, Ring) else slots


def _alike(
    own: KeysValues, keys: Float[Array, "B H C d"], values: Float[Array, "B H C d"]
) -> KeysValues:
    return Ring(keys, values) if isinstance(own, Ring) else (keys, values)
