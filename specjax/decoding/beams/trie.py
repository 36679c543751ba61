"""Feeding nodes of a trie of hypotheses that lies behind the prompt in one row of a cache.

Letters: B batch rows, W beams, N nodes of a round, T nodes fed in one call, S slots of the trie.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.env import Bound
from specjax.decoding.beams.state import BeamDecoder, Search
from specjax.models.base import Cache


class Nodes(struct.PyTreeNode):
    """What a round puts before the target: the live hypotheses, then the drafted ones by step."""

    token: jax.Array  # [B, N] int32
    parent: jax.Array  # [B, N] int32: among the round's nodes; -1 of the live hypotheses
    sees: jax.Array  # [B, N, S] bool: slots of the trie, each node's own too


def own_slots(decoder: BeamDecoder, search: Search, first: int, count: int) -> jax.Array:
    """Whether [B, count, S] each slot is that of a round's nodes from `first` on."""
    slot = (search.step * decoder.beams)[:, None] + first + jnp.arange(count)
    return slot[..., None] == jnp.arange(decoder.slots)


def live_nodes(decoder: BeamDecoder, search: Search) -> Nodes:
    """The live hypotheses."""
    sees = search.seen | own_slots(decoder, search, 0, decoder.beams)
    return Nodes(search.live.token, jnp.full_like(search.live.token, -1), sees)


def concatenate_nodes(parts: list[Nodes]) -> Nodes:
    """Nodes one after another."""
    return jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), *parts)


def feed(
    decoder: BeamDecoder,
    model: Bound,
    search: Search,
    cache: Cache,
    begin: jax.Array,
    nodes: Nodes,
    first: int = 0,
) -> tuple[jax.Array, Cache]:
    """Logits [B, T, V] after a round's nodes from `first` on, written after those before."""
    where = placement(decoder, search, begin, nodes, first)
    token = jnp.minimum(nodes.token, model.info.vocab_size - 1)  # a drafter may have fewer ids
    output, cache = model.extend(token, cache, **where)
    return output.logits, cache


def placement(
    decoder: BeamDecoder, search: Search, begin: jax.Array, nodes: Nodes, first: int
) -> dict[str, jax.Array]:
    """What `LanguageModel.extend` must know of a round's nodes from `first` on.

    The tree are the last S slots of the cache. Of these the first may lie before the trie, in the
    prompt or before any slot.
    """
    fed, size = nodes.token.shape[1], decoder.slots
    used = (search.step * decoder.beams)[:, None]  # [B, 1]
    slot = used + first + fed - size + jnp.arange(size)  # [B, S] of the trie, at each place
    in_prompt = slot < 0
    depth = jnp.asarray(decoder.depth)[jnp.clip(slot - used, 0, len(decoder.depth) - 1)]
    step = jnp.where(slot < used, slot // decoder.beams, search.step[:, None] + depth)
    position = begin[:, None] + jnp.where(in_prompt, slot, step)
    among = jnp.take_along_axis(nodes.sees, jnp.clip(slot, 0, size - 1)[:, None], axis=2)
    return {"position": position, "visible": among | in_prompt[:, None]}


def rewind_cache(cache: Cache, begin: jax.Array, decoder: BeamDecoder, search: Search) -> Cache:
    """The cache with its pointer where the next round's nodes begin."""
    return cache.replace(length=begin + search.step * decoder.beams)
