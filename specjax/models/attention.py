"""Attention that never holds the scores of all queries and keys of a long text at once.

Short texts keep `layers.attend`, one array of scores [B, H, T, C]. Which way is taken follows from
static shapes and the numbers below; docs/how_to/long_prompts.md has their measurements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models.layers import MASKED, attend, causal_mask, key_mask, soft_cap

WHOLE_SCORES = 2048 * 2048
"""Most queries times keys whose scores are one array."""

QUERIES = 128
"""Most queries of a block that meets all keys."""

LONG_CACHE = 4096
"""Most slots of a cache that a call attends to whether they are filled or not."""

KEYS = 512
"""Slots of a longer cache that are attended to in one step."""

WHOLE_PROMPT = 1024
"""Most tokens of a prompt that go through the layers together."""

CHUNK = 512
"""Most tokens of a longer prompt that do."""


def least_scores(tokens: int, in_chunks: bool) -> int:
    """Least entries of a row's and head's scores that reading so many tokens holds at once.

    `in_chunks` is how decoder-only models read prompts. Blocks are equal, at least half of their
    largest size.
    """
    if in_chunks and tokens > WHOLE_PROMPT:
        return CHUNK // 2 * KEYS
    return tokens * tokens if is_whole(tokens, tokens) else QUERIES // 2 * tokens


class Bias(Protocol):
    """What is added to scores, made for some queries and keys at a time."""

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        """The bias of so many queries from `query` on and of keys from `key` on.

        [B, H, queries, keys], of which B or H may be 1. Queries behind the last get any bias.
        """
        ...


class CausalBias(struct.PyTreeNode):
    """Queries see keys up to their own position, of the last `window` if that is not 0."""

    start: Int32[Array, " B"]  # position of the first query
    window: int = struct.field(pytree_node=False, default=0)
    slots: Int32[Array, "B C"] | None = None  # position of each key; None: that of its place

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        if self.slots is None:
            position = (self.start + (query - key))[:, None] + jnp.arange(queries)
            return causal_mask(position, jnp.arange(keys), self.window)
        position = (self.start + query)[:, None] + jnp.arange(queries)
        slots = jax.lax.dynamic_slice_in_dim(self.slots, key, keys, axis=1)
        return causal_mask(position, slots, self.window)


class LengthBias(struct.PyTreeNode):
    """All queries see the keys before each row's `length`, or the near ones of them."""

    length: Int32[Array, " B"]
    # Most places before and behind a query; None: any.
    reach: tuple[int, int] | None = struct.field(pytree_node=False, default=None)

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        mask = key_mask(self.length - key, keys)
        if self.reach is None:
            return mask
        distance = (query + jnp.arange(queries))[:, None] - (key + jnp.arange(keys))
        before, behind = self.reach
        return jnp.where((distance > before) | (distance < -behind), MASKED, mask)


class GivenBias(struct.PyTreeNode):
    """A bias of few queries that was made for all keys."""

    bias: Float[Array, "B H T C"]  # of which H may be 1

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        part = jax.lax.dynamic_slice_in_dim(self.bias, query, queries, axis=2)
        return jax.lax.dynamic_slice_in_dim(part, key, keys, axis=3)


class WithoutFirst(struct.PyTreeNode):
    """Another bias, but the first slot is seen by itself only."""

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
    """A bias over a long cache, of which only the slots from `first` to `last` are seen by any."""

    bias: Bias
    first: Int32[Array, ""]
    last: Int32[Array, ""]  # exclusive


AnyBias = jax.Array | Bias | CacheBias
"""What `attention` takes: an array [B, H, T, C] (axes may be 1), or what makes parts of it."""


def is_whole(queries: int, keys: int) -> bool:
    """Whether the scores of texts that are read at once are one array."""
    return queries * keys <= WHOLE_SCORES


def of_texts(bias: Bias, queries: int, keys: int) -> AnyBias:
    """The bias of texts that are read at once: one array where their scores are."""
    return bias.tile(0, queries, 0, keys) if is_whole(queries, keys) else bias


def of_cache(bias: Bias, start: Int[Array, " B"], queries: int, window: int = 0) -> CacheBias:
    """The bias of tokens that are fed to slots `start` [B] on, as far as any of them sees slots."""
    first = jnp.maximum(jnp.min(start) - window + 1, 0) if window else jnp.int32(0)
    return CacheBias(bias, first, jnp.max(start) + queries)


def of_call(
    bias: Bias, start: Int[Array, " B"], queries: int, slots: int, window: int = 0
) -> AnyBias:
    """The bias of a call of `extend`: made as it is needed where the cache is long."""
    if slots > LONG_CACHE and queries <= CHUNK:
        return of_cache(bias, start, queries, window)
    return of_texts(bias, queries, slots)


def of_tree(bias: Float32[Array, "B H T C"], start: Int[Array, " B"]) -> AnyBias:
    """The same of a tree, whose bias [B, H, T, C] is an array: few tokens are fed."""
    queries, slots = bias.shape[2:]
    if slots > LONG_CACHE:
        return of_cache(GivenBias(bias), start, queries)
    return bias


def attention(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: AnyBias,
    softcap: float = 0.0,
) -> Float[Array, "B H T d"]:
    """`layers.attend` of q [B, H, T, d] over k, v [B, H, C, d], in parts unless `bias` is whole."""
    whole = functools.partial(attend, softcap=softcap)

    def in_blocks(q: jax.Array, k: jax.Array, v: jax.Array, bias: CacheBias) -> jax.Array:
        return _divided(_over_keys(q, k, v, bias, softcap)).astype(v.dtype)

    return _in_parts(q, k, v, bias, whole, in_blocks)


Source = tuple[jax.Array, jax.Array, AnyBias]
"""Keys and values [B, H, C, d] that are attended to, and their bias."""


def merge_attention(
    q: Float[Array, "B H T d"], sources: Sequence[Source]
) -> Float[Array, "B H T d"]:
    """One softmax over the keys of all `sources`.

    Each is attended to where it lies, in the way that its own size asks for: a cache of the tokens
    that were written and one of those that were read never are one array.
    """
    made = [_in_parts(q, k, v, bias, _sums, _over_keys) for k, v, bias in sources]
    return _divided(functools.reduce(_merge_sums, made)).astype(sources[0][1].dtype)


Sums = tuple[Float32[Array, "B H T 1"], Float32[Array, "B H T 1"], Float32[Array, "B H T d"]]
"""The largest score of each query over some keys, and relative to it the sum of all weights,
and the weighted sum of values."""


def _sums(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float32[Array, "#B #H #T #C"],
    softcap: float = 0.0,
) -> Sums:
    """Those over all keys, whose scores are one array; heads are grouped as in `layers.attend`."""
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
    """The sums over the keys of both."""
    largest = jnp.maximum(one[0], other[0])
    kept, more = jnp.exp(one[0] - largest), jnp.exp(other[0] - largest)
    return largest, kept * one[1] + more * other[1], kept * one[2] + more * other[2]


def _divided(sums: Sums) -> Float32[Array, "B H T d"]:
    """The mean of the values [B, H, T, d]."""
    _, total, mixed = sums
    return mixed / total


def _in_parts(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: AnyBias,
    whole: Callable[..., Any],
    in_blocks: Callable[..., Any],
) -> Any:
    """Of every query, [B, H, T, ...], what `whole` makes of a bias that is one array.

    `in_blocks` makes the same of a `CacheBias`.
    """
    if isinstance(bias, jax.Array):
        return whole(q, k, v, bias)
    if isinstance(bias, CacheBias):
        return _over_cache(q, k, v, bias, whole, in_blocks)
    return _over_queries(q, k, v, bias, whole)


def _over_cache(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: CacheBias,
    whole: Callable[..., Any],
    in_blocks: Callable[..., Any],
) -> Any:
    """In blocks of slots, but for calls of few tokens on accelerators.

    Compiled for a TPU, the loop over blocks wants caches in another layout and has them copied at
    every call, filled or not (docs/how_to/long_prompts.md).
    """
    queries, slots = q.shape[2], k.shape[2]
    if not is_whole(queries, slots):
        return in_blocks(q, k, v, bias)

    def at_once(q: jax.Array, k: jax.Array, v: jax.Array, bias: CacheBias) -> Any:
        return whole(q, k, v, bias.bias.tile(0, queries, 0, slots))

    return jax.lax.platform_dependent(q, k, v, bias, cpu=in_blocks, default=at_once)


def _over_queries(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: Bias, whole: Callable[..., Any]
) -> Any:
    """Blocks of queries, one after another, each over all keys.

    For a gradient, weights are computed again: kept, they would be as large as all scores.
    """
    batch, heads, length, width = q.shape
    count = -(-length // QUERIES)
    block = -(-length // count)
    padded = jnp.pad(q, ((0, 0), (0, 0), (0, count * block - length), (0, 0)))
    blocks = jnp.moveaxis(padded.reshape(batch, heads, count, block, width), 2, 0)

    def one(numbered: tuple[jax.Array, jax.Array]) -> Any:
        number, q = numbered
        return whole(q, k, v, bias.tile(number * block, block, 0, k.shape[2]))

    def behind(made: jax.Array) -> jax.Array:
        merged = jnp.moveaxis(made, 0, 2).reshape(batch, heads, count * block, -1)
        return merged[:, :, :length]

    made = jax.lax.map(jax.checkpoint(one, prevent_cse=False), (jnp.arange(count), blocks))
    return jax.tree.map(behind, made)


def _over_keys(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: CacheBias,
    softcap: float = 0.0,
) -> Sums:
    """All queries over one block of slots after another, as far as slots are seen.

    Softmax as it goes: sums are rescaled when a larger score comes (Milakov and Gimelshein 2018,
    "Online normalizer calculation for softmax"). Blocks that a row does not see change none of its
    bits. There is no gradient: the number of blocks is not static.
    """
    length, slots = q.shape[2], k.shape[2]
    size = min(KEYS, slots)

    def block(number: jax.Array, sums: Sums) -> Sums:
        begin = jnp.minimum(number * size, slots - size)  # the last may reach back, over seen ones
        keys, values = (jax.lax.dynamic_slice_in_dim(x, begin, size, axis=2) for x in (k, v))
        seen = jnp.where(begin + jnp.arange(size) < number * size, MASKED, 0.0)
        added = bias.bias.tile(0, length, begin, size) + seen
        return _merge_sums(sums, _sums(q, keys, values, added, softcap))

    zero = jnp.zeros((*q.shape[:3], 1), jnp.float32)
    sums = jnp.full_like(zero, -jnp.inf), zero, jnp.zeros(q.shape, jnp.float32)
    # Fed tokens may reach behind the last slot: they are dropped there.
    first = jnp.minimum(bias.first, slots - 1) // size
    last = -(-jnp.minimum(bias.last, slots) // size)
    return jax.lax.fori_loop(first, last, block, sums)
