"""Caches of recurrent layers: a state, and what each token after it has added.

`state` is the one after the slots before `base`; what later tokens added is stored slot by slot, in
plain arrays or in rings (`models.caches`). The state after any of them is a sum over slots
(`models.recurrence`), so rejecting tokens only lowers the pointer, and accepted nodes of a tree are
moved like keys and values.

A ring of R = reach + `ahead` slots holds all that a later call needs: that call begins at most
`ahead` slots before the last written one, and its convolution reads `reach` slots before that.
So each call moves the base to `ahead` slots before its end, which is never beyond the first slot of
a later call. In a plain cache the base stays at 0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from specjax.models.caches import (
    compute_cache_size,
    fill,
    list_ring_slots,
    make_prompt_cache,
    write,
)
from specjax.models.recurrence import (
    State,
    Updates,
    add_updates,
    compute_chain_decays,
    read_state,
)


class Entries(NamedTuple):
    """What tokens added to the state, and the inputs of their convolution; head-major."""

    keys: Float32[Array, "B G N E"]
    values: Float32[Array, "B H N F"]
    decays: Float32[Array, "B H N 1"]
    inputs: Float[Array, "B 1 N C"]

    @property
    def updates(self) -> Updates:
        return Updates(self.keys, self.values, self.decays[..., 0])


class RecurrentCache(struct.PyTreeNode):
    """The cache of a recurrent layer."""

    state: Float32[Array, "B H E F"]  # after the slots before `base`
    base: Int32[Array, " B"]
    entries: Entries  # slot s at index s mod R of a ring, else at index s
    ahead: int | None = struct.field(pytree_node=False)  # of a ring; None: plain

    @property
    def size(self) -> int:
        """R, or the capacity."""
        return self.entries.keys.shape[2]


LayerKeysValues = tuple[Float[Array, "B _ _ _"], Float[Array, "B _ _ _"]]
"""Keys and values of one of several layers, whose heads may differ."""

LayerCache = LayerKeysValues | RecurrentCache | None
"""The cache of a layer with attention, or of a recurrent one; None: of one with neither."""


def make_empty_recurrent_cache(
    like: Entries, capacity: int, reach: int, ahead: int | None
) -> RecurrentCache:
    """Creates a cache for tokens of the shapes `like`, of any number of slots."""
    size, ring = compute_cache_size(capacity, reach, ahead)
    entries = Entries(*(jnp.zeros((*x.shape[:2], size, x.shape[3]), x.dtype) for x in like))
    rows, heads, _, width = like.values.shape
    state = jnp.zeros((rows, heads, like.keys.shape[3], width), jnp.float32)
    return RecurrentCache(state, jnp.zeros(rows, jnp.int32), entries, ahead if ring else None)


def make_prompt_recurrent_cache(
    new: Entries, length: Int[Array, " B"], capacity: int, reach: int, ahead: int | None
) -> RecurrentCache:
    """Creates a cache with the entries [B, _, P, _] of prompts of `length` [B]."""
    like = jax.eval_shape(lambda: new)
    empty = make_empty_recurrent_cache(like, capacity, reach, ahead)
    return append_chunk(empty, new, jnp.zeros_like(length), length)


def make_layer_cache(
    new: LayerKeysValues | Entries | None,
    length: Int[Array, " B"],
    capacity: int,
    reach: int,
    ahead: int | None,
) -> LayerCache:
    """Creates a layer's cache with what prompts [B, P] of `length` [B] add to it."""
    if new is None:
        return None
    if isinstance(new, Entries):
        return make_prompt_recurrent_cache(new, length, capacity, reach, ahead)
    return make_prompt_cache(new, length, capacity, reach, ahead)


def append_chunk(
    own: RecurrentCache, new: Entries, start: Int[Array, " B"], length: Int[Array, " B"]
) -> RecurrentCache:
    """Appends a prompt chunk's entries from slot `start` [B]; prompts have `length` [B].

    In a ring padding must not overwrite tokens.
    """
    if own.ahead is None:
        return _write(own, new, start)
    end = jnp.minimum(start + new.keys.shape[2], length)
    base = jnp.maximum(own.base, end - own.ahead)
    state = compute_state(own, jnp.minimum(base, start))
    counted = jnp.arange(new.keys.shape[2]) < (base - start)[:, None]
    state = add_updates(state, new.updates, *compute_chain_decays(new.updates.decays, counted))
    slots = list_ring_slots(own.size, end)
    entries = (fill(old, x, slots, start) for old, x in zip(own.entries, new, strict=True))
    return own.replace(state=state, base=base, entries=Entries(*entries))


def append_tokens(own: RecurrentCache, new: Entries, start: Int[Array, " B"]) -> RecurrentCache:
    """Writes the entries of fed tokens to slots from `start` [B].

    Raises:
      ValueError: if a ring has too few slots.
    """
    fed = new.keys.shape[2]
    if own.ahead is not None:
        if fed > own.ahead:
            raise ValueError(
                f"{fed} tokens are fed at once; a ring of {own.size} slots has room for {own.ahead}"
            )
        base = jnp.maximum(own.base, start + fed - own.ahead)
        own = own.replace(state=compute_state(own, base), base=base)
    return _write(own, new, start)


def move_entries(
    own: RecurrentCache, start: Int[Array, " B"], path: Int[Array, "B N"], count: Int[Array, " B"]
) -> RecurrentCache:
    """Moves the entries of the first `count` [B] slots of `start + path` [B, N] to `start ..`.

    Others stay: written beyond the last fed slot they would replace what a ring still needs.
    """
    moved = take_entries(own, start[:, None] + path)
    return _write(own, moved, start, jnp.arange(path.shape[1]) < count[:, None])


def take_entries(own: RecurrentCache, slots: Int[Array, "B N"]) -> Entries:
    """Returns the entries of `slots` [B, N]; those of slots before the first are arbitrary."""
    at = _get_indices(own, slots)[:, None, :, None]
    return Entries(*(jnp.take_along_axis(x, at, axis=2, mode="clip") for x in own.entries))


def take_inputs(
    own: RecurrentCache, start: Int[Array, " B"], reach: int
) -> Float[Array, "B {reach} C"]:
    """Returns the convolution's inputs of the `reach` slots before `start` [B], 0 before slot 0."""
    slots = start[:, None] + jnp.arange(-reach, 0)
    at = _get_indices(own, slots)[..., None]
    found = jnp.take_along_axis(own.entries.inputs[:, 0], at, axis=1, mode="clip")
    return jnp.where((slots >= 0)[..., None], found, 0)


def compute_state(own: RecurrentCache, slot: Int[Array, " B"]) -> State:
    """Computes the state after the slots before `slot` [B]."""
    return add_updates(own.state, own.entries.updates, *_weigh(own, slot))


def read_cache(
    own: RecurrentCache, slot: Int[Array, " B"], vectors: Float32[Array, "B G M E"]
) -> Float32[Array, "B H M F"]:
    """Multiplies the state after the slots before `slot` [B] by vectors [B, G, M, E]."""
    return read_state(own.state, own.entries.updates, *_weigh(own, slot), vectors)


def _weigh(
    own: RecurrentCache, slot: Int[Array, " B"]
) -> tuple[Float32[Array, "B H N"], Float32[Array, "B H"]]:
    """Computes the decay from each index of the cache to `slot` [B], and that of `state`.

    Sums are in the order of slots; indices outside of `base` to `slot` have the weight 0.
    """
    first = slot - own.size if own.ahead is not None else jnp.zeros_like(slot)
    slots = first[:, None] + jnp.arange(own.size)
    counted = (slots >= own.base[:, None]) & (slots < slot[:, None])
    ordered = _take(own.entries.updates.decays, _get_indices(own, slots))
    weights, decay = compute_chain_decays(ordered, counted)
    return _take(weights, _get_indices(own, jnp.arange(own.size) - first[:, None])), decay


def _take(x: jax.Array, indices: Int[Array, "B N"]) -> jax.Array:
    return jnp.take_along_axis(x, indices[:, None], axis=2)


def _get_indices(own: RecurrentCache, slots: Int[Array, "B N"]) -> Int[Array, "B N"]:
    return slots if own.ahead is None else jnp.mod(slots, own.size)


def _write(
    own: RecurrentCache,
    new: Entries,
    start: Int[Array, " B"],
    written: Bool[Array, "B N"] | None = None,
) -> RecurrentCache:
    """Writes entries to slots from `start` [B], all or those that are `written`."""
    indices = _get_indices(own, start[:, None] + jnp.arange(new.keys.shape[2]))
    if written is not None:
        indices = jnp.where(written, indices, own.size)  # beyond the last: dropped
    entries = (write(old, x, indices) for old, x in zip(own.entries, new, strict=True))
    return own.replace(entries=Entries(*entries))
