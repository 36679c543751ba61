"""Attention in blocks, so that long texts never need all scores in memory at once.

Short texts use `layers.attend`, with one array of scores [B, H, T, C]. Static shapes and the
constants below select the implementation; docs/how_to/long_prompts.md has their measurements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models.layers import (
    MASKED,
    Sinks,
    attend,
    make_causal_mask,
    make_key_mask,
    soft_cap,
)

WHOLE_SCORES = 2048 * 2048
"""Maximum of queries times keys whose scores are one array."""

QUERIES = 128
"""Maximum queries per block, each block over all keys."""

LONG_CACHE = 4096
"""Maximum cache slots that a call attends to in full, empty slots included."""

KEYS = 512
"""Slots per block of a longer cache."""

WHOLE_PROMPT = 1024
"""Maximum tokens of a prompt that is prefilled in one call."""

CHUNK = 512
"""Maximum tokens per chunk of a longer prompt."""


def count_scores(tokens: int, in_chunks: bool) -> int:
    """Counts scores per row and head held at once during prefill, at least.

    `in_chunks` is True for decoder-only models. Blocks have equal sizes of at least half their
    maximum.
    """
    if in_chunks and tokens > WHOLE_PROMPT:
        return CHUNK // 2 * KEYS
    return tokens * tokens if is_whole(tokens, tokens) else QUERIES // 2 * tokens


class Bias(Protocol):
    """A bias added to attention scores, computed per block of queries and keys."""

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        """Computes the bias [B, H, queries, keys] of a block that begins at `query` and `key`.

        B and H may be 1. The bias of queries after the last is arbitrary.
        """
        ...


class CausalBias(struct.PyTreeNode):
    """Causal mask: queries attend up to their position, within `window` if not 0.

    If `chunked`, the window is the chunk of a query: it begins at a multiple of `window`.
    """

    start: Int32[Array, " B"]  # position of the first query
    window: int = struct.field(pytree_node=False, default=0)
    slots: Int32[Array, "B C"] | None = None  # position of each key; None: its index
    chunked: bool = struct.field(pytree_node=False, default=False)

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        position = (self.start + query)[:, None] + jnp.arange(queries)
        if self.slots is None:
            slots = key + jnp.arange(keys)
        else:
            slots = jax.lax.dynamic_slice_in_dim(self.slots, key, keys, axis=1)
        return make_causal_mask(position, slots, self.window, self.chunked)


class LengthBias(struct.PyTreeNode):
    """Padding mask: queries attend to keys below each row's `length`, within `reach`."""

    length: Int32[Array, " B"]
    # Maximum distances before and after a query; None: unlimited.
    reach: tuple[int, int] | None = struct.field(pytree_node=False, default=None)

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        mask = make_key_mask(self.length - key, keys)
        if self.reach is None:
            return mask
        distance = (query + jnp.arange(queries))[:, None] - (key + jnp.arange(keys))
        before, after = self.reach
        return jnp.where((distance > before) | (distance < -after), MASKED, mask)


class ArrayBias(struct.PyTreeNode):
    """A bias of few queries, given as an array over all keys."""

    bias: Float[Array, "B H T C"]  # of which H may be 1

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        part = jax.lax.dynamic_slice_in_dim(self.bias, query, queries, axis=2)
        return jax.lax.dynamic_slice_in_dim(part, key, keys, axis=3)


class WithoutFirst(struct.PyTreeNode):
    """Another bias with the first slot hidden from all other queries."""

    bias: Bias
    start: Int32[Array, " B"]  # position of the first query

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        position = (self.start + query)[:, None] + jnp.arange(queries)
        hidden = (position > 0)[..., None] & (key + jnp.arange(keys) == 0)
        tile = self.bias.tile(query, queries, key, keys)
        return tile + jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None]


class CacheBias(struct.PyTreeNode):
    """A bias over a long cache in which queries attend to slots `first` to `last` only."""

    bias: Bias
    first: Int32[Array, ""]
    last: Int32[Array, ""]  # exclusive


AnyBias = jax.Array | Bias | CacheBias
"""Bias of `attention`: an array [B, H, T, C] (axes may be 1), or an object that computes blocks."""


def is_whole(queries: int, keys: int) -> bool:
    """Returns whether the scores of texts fit into one array."""
    return queries * keys <= WHOLE_SCORES


def make_text_bias(bias: Bias, queries: int, keys: int) -> AnyBias:
    """Returns the bias of whole texts, as one array if their scores fit into one."""
    return bias.tile(0, queries, 0, keys) if is_whole(queries, keys) else bias


def make_cache_bias(
    bias: Bias, start: Int[Array, " B"], queries: int, window: int = 0
) -> CacheBias:
    """Builds the bias of tokens fed at slots `start` [B] over the visible range of slots."""
    first = jnp.maximum(jnp.min(start) - window + 1, 0) if window else jnp.int32(0)
    return CacheBias(bias, first, jnp.max(start) + queries)


def make_call_bias(
    bias: Bias, start: Int[Array, " B"], queries: int, slots: int, window: int = 0
) -> AnyBias:
    """Returns the bias of an `extend` call, computed per block for a long cache."""
    if slots > LONG_CACHE and queries <= CHUNK:
        return make_cache_bias(bias, start, queries, window)
    return make_text_bias(bias, queries, slots)


def make_tree_bias(bias: Float32[Array, "B H T C"], start: Int[Array, " B"]) -> AnyBias:
    """Returns the bias of an `extend` call on a tree from its array [B, H, T, C]."""
    queries, slots = bias.shape[2:]
    if slots > LONG_CACHE:
        return make_cache_bias(ArrayBias(bias), start, queries)
    return bias


def attention(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: AnyBias,
    softcap: float = 0.0,
    sinks: Sinks | None = None,
) -> Float[Array, "B H T d"]:
    """Attends q [B, H, T, d] to k, v [B, H, C, d], in blocks unless `bias` is an array."""
    whole = functools.partial(attend, softcap=softcap, sinks=sinks)

    def in_blocks(q: jax.Array, k: jax.Array, v: jax.Array, bias: CacheBias) -> jax.Array:
        sums = _attend_by_key_block(q, k, v, bias, softcap)
        if sinks is not None:
            sums = _add_sinks(sums, sinks)
        return _divide(sums).astype(v.dtype)

    return _attend_in_parts(q, k, v, bias, whole, in_blocks)


Source = tuple[jax.Array, jax.Array, AnyBias]
"""Keys and values [B, H, C, d] with their bias."""


def merge_attention(
    q: Float[Array, "B H T d"], sources: Sequence[Source]
) -> Float[Array, "B H T d"]:
    """Attends q [B, H, T, d] to all `sources` with one softmax.

    Sources, such as the caches of decoder tokens and of encoder states, are not concatenated; each
    is processed at once or in blocks according to its size.
    """
    made = [
        _attend_in_parts(q, k, v, bias, _compute_sums, _attend_by_key_block)
        for k, v, bias in sources
    ]
    return _divide(functools.reduce(_merge_sums, made)).astype(sources[0][1].dtype)


Sums = tuple[Float32[Array, "B H T 1"], Float32[Array, "B H T 1"], Float32[Array, "B H T d"]]
"""Each query's largest score over some keys, and relative to it the sum of weights and the weighted
sum of values."""


def _compute_sums(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float32[Array, "#B #H #T #C"],
    softcap: float = 0.0,
) -> Sums:
    """Computes the sums over all keys at once; heads are grouped as in `layers.attend`."""
    batch, heads, length, width = q.shape
    groups = heads // k.shape[1]
    queries = q.reshape(batch, k.shape[1], groups * length, width)
    if groups > 1 and bias.shape[2] > 1:
        bias = jnp.tile(bias, (1, 1, groups, 1))
    scores = jnp.einsum("bhtd,bhcd->bhtc", queries, k, preferred_element_type=jnp.float32)
    scores = bias + soft_cap(scores, softcap)
    largest = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - largest)
    mixed = jnp.einsum(
        "bhtc,bhcd->bhtd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    made = largest, jnp.sum(weights, axis=-1, keepdims=True), mixed
    return jax.tree.map(lambda x: x.reshape(batch, heads, length, -1), made)


def _merge_sums(one: Sums, other: Sums) -> Sums:
    """Merges the sums over two sets of keys."""
    largest = jnp.maximum(one[0], other[0])
    kept, more = jnp.exp(one[0] - largest), jnp.exp(other[0] - largest)
    return largest, kept * one[1] + more * other[1], kept * one[2] + more * other[2]


def _add_sinks(sums: Sums, sinks: Sinks) -> Sums:
    """Adds the weight of each head's sink, whose value is zero."""
    largest = jnp.maximum(sums[0], sinks)
    kept = jnp.exp(sums[0] - largest)
    return largest, kept * sums[1] + jnp.exp(sinks - largest), kept * sums[2]


def _divide(sums: Sums) -> Float32[Array, "B H T d"]:
    """Divides the sums into the attention output [B, H, T, d]."""
    _, total, mixed = sums
    return mixed / total


def _attend_in_parts(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: AnyBias,
    whole: Callable[..., Any],
    in_blocks: Callable[..., Any],
) -> Any:
    """Runs `whole` per block of queries, or `in_blocks` on a `CacheBias`, [B, H, T, ...].

    With an array as `bias`, `whole` runs once.
    """
    if isinstance(bias, jax.Array):
        return whole(q, k, v, bias)
    if isinstance(bias, CacheBias):
        return _attend_over_cache(q, k, v, bias, whole, in_blocks)
    return _attend_by_query_block(q, k, v, bias, whole)


def _attend_over_cache(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: CacheBias,
    whole: Callable[..., Any],
    in_blocks: Callable[..., Any],
) -> Any:
    """Attends in blocks of slots, but at once in calls of few tokens on accelerators.

    On a TPU, the loop over blocks needs caches in another layout and copies them whole at every
    call (docs/how_to/long_prompts.md).
    """
    queries, slots = q.shape[2], k.shape[2]
    if not is_whole(queries, slots):
        return in_blocks(q, k, v, bias)

    def at_once(q: jax.Array, k: jax.Array, v: jax.Array, bias: CacheBias) -> Any:
        return whole(q, k, v, bias.bias.tile(0, queries, 0, slots))

    return jax.lax.platform_dependent(q, k, v, bias, cpu=in_blocks, default=at_once)


def _attend_by_query_block(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: Bias, whole: Callable[..., Any]
) -> Any:
    """Attends one block of queries after another to all keys.

    The gradient recomputes the weights, which would be as large as all scores.
    """
    batch, heads, length, width = q.shape
    count = -(-length // QUERIES)
    block = -(-length // count)
    padded = jnp.pad(q, ((0, 0), (0, 0), (0, count * block - length), (0, 0)))
    blocks = jnp.moveaxis(padded.reshape(batch, heads, count, block, width), 2, 0)

    def one(numbered: tuple[jax.Array, jax.Array]) -> Any:
        number, q = numbered
        return whole(q, k, v, bias.tile(number * block, block, 0, k.shape[2]))

    def merge(made: jax.Array) -> jax.Array:
        merged = jnp.moveaxis(made, 0, 2).reshape(batch, heads, count * block, -1)
        return merged[:, :, :length]

    made = jax.lax.map(jax.checkpoint(one, prevent_cse=False), (jnp.arange(count), blocks))
    return jax.tree.map(merge, made)


def _attend_by_key_block(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: CacheBias,
    softcap: float = 0.0,
) -> Sums:
    """Attends all queries to one block of visible slots after another.

    Online softmax: sums are rescaled at a larger score (Milakov and Gimelshein 2018, "Online
    normalizer calculation for softmax"). Blocks masked for a row leave its sums bitwise unchanged.
    There is no gradient, because the number of blocks is not static.
    """
    length, slots = q.shape[2], k.shape[2]
    size = min(KEYS, slots)

    def block(number: jax.Array, sums: Sums) -> Sums:
        begin = jnp.minimum(
            number * size, slots - size
        )  # the last block may overlap the previous one
        keys, values = (jax.lax.dynamic_slice_in_dim(x, begin, size, axis=2) for x in (k, v))
        overlap = jnp.where(begin + jnp.arange(size) < number * size, MASKED, 0.0)
        added = bias.bias.tile(0, length, begin, size) + overlap
        return _merge_sums(sums, _compute_sums(q, keys, values, added, softcap))

    zero = jnp.zeros((*q.shape[:3], 1), jnp.float32)
    sums = jnp.full_like(zero, -jnp.inf), zero, jnp.zeros(q.shape, jnp.float32)
    # Fed tokens beyond the last slot are dropped.
    first = jnp.minimum(bias.first, slots - 1) // size
    last = -(-jnp.minimum(bias.last, slots) // size)
    return jax.lax.fori_loop(first, last, block, sums)
