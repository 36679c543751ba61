"""Feeds nodes of a trie of hypotheses, stored after the prompt in one row of a cache.

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
    """The nodes that a round feeds: live hypotheses, then drafted ones by step."""

    token: jax.Array  # [B, N] int32
    parent: jax.Array  # [B, N] int32: among the round's nodes; -1 of the live hypotheses
    sees: jax.Array  # [B, N, S] bool: slots of the trie, each node's own too


def own_slots(decoder: BeamDecoder, search: Search, first: int, count: int) -> jax.Array:
    """Mask [B, count, S] of the slots of a round's nodes from `first` on."""
    slot = (search.step * decoder.beams)[:, None] + first + jnp.arange(count)
    return slot[..., None] == jnp.arange(decoder.slots)


def live_nodes(decoder: BeamDecoder, search: Search) -> Nodes:
    """The nodes of the live hypotheses."""
    sees = search.visible_slots | own_slots(decoder, search, 0, decoder.beams)
    return Nodes(search.live.token, jnp.full_like(search.live.token, -1), sees)


def concatenate_nodes(parts: list[Nodes]) -> Nodes:
    """Concatenates nodes."""
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
    """Logits [B, T, V] after a round's nodes from `first` on; appends them to the cache."""
    where = placement(decoder, search, begin, nodes, first)
    token = jnp.minimum(nodes.token, model.info.vocab_size - 1)  # a drafter may have fewer ids
    output, cache = model.extend(token, cache, **where)
    return output.logits, cache


def placement(
    decoder: BeamDecoder, search: Search, begin: jax.Array, nodes: Nodes, first: int
) -> dict[str, jax.Array]:
    """The placement of a round's nodes from `first` on, for `LanguageModel.extend`.

    The tree is the last S slots of the cache. The first of these may be before the trie, in the
    prompt or before any slot.
    """
    fed, size = nodes.token.shape[1], decoder.slots
    used = (search.step * decoder.beams)[:, None]  # [B, 1]
    slot = used + first + fed - size + jnp.arange(size)  # [B, S] of the trie, at each position
    in_prompt = slot < 0
    depth = jnp.asarray(decoder.depth)[jnp.clip(slot - used, 0, len(decoder.depth) - 1)]
    step = jnp.where(slot < used, slot // decoder.beams, search.step[:, None] + depth)
    position = begin[:, None] + jnp.where(in_prompt, slot, step)
    among = jnp.take_along_axis(nodes.sees, jnp.clip(slot, 0, size - 1)[:, None], axis=2)
    return {"position": position, "visible": among | in_prompt[:, None]}


def rewind_cache(cache: Cache, begin: jax.Array, decoder: BeamDecoder, search: Search) -> Cache:
    """Moves the cache's pointer to the first node of the next round."""
    return cache.replace(length=begin + search.step * decoder.beams)
