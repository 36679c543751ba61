"""Generation settings of a beam search: on log-probabilities, as in transformers.

Letters: B batch rows, W beams, N nodes of a round, T of them, S slots of the trie, M most new
tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context, Options
from specjax.contracts.logits_processor import bind_processors
from specjax.decoding.beams.state import BeamDecoder, Search, State
from specjax.decoding.beams.trie import Nodes

Processor = Callable[[jax.Array], jax.Array]


def process_logits(
    decoder: BeamDecoder, options: Options, state: State, nodes: Nodes, sees: jax.Array
) -> Processor | None:
    """Processor of log-probabilities [B, T, V] after nodes that see slots [B, T, S].

    None without settings. `nodes` are all nodes of the round so far.
    """
    if not options.processors:
        return None
    path, depth = gather_texts(decoder, state.search, nodes, sees)

    def adjust(logp: jax.Array) -> jax.Array:
        context = _prompts(decoder, options, state)
        return bind_processors(context, logp.shape[-1]).process_paths(logp, path, depth)

    return adjust


def gather_texts(
    decoder: BeamDecoder, search: Search, nodes: Nodes, sees: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The tokens [B, T, D] of hypotheses that see slots [B, T, S], and how many [B, T] each has.

    Slots ascend with the steps. The first visible slot is that of the pending token of step 0.
    """
    beams, size = decoder.beams, decoder.slots
    slot = jnp.arange(size)
    before = search.tokens.reshape(len(search.tokens), -1)[:, :size]
    before = jnp.pad(before, ((0, 0), (0, size - before.shape[1])))
    node = slot - (search.step * beams)[:, None]
    now = jnp.take_along_axis(nodes.token, jnp.maximum(node, 0), axis=1, mode="clip")
    token = jnp.where(node < 0, before, now)
    longest = decoder.max_new_tokens + decoder.length
    visible_slots = jnp.argsort(~sees, axis=-1, stable=True)[..., 1 : longest + 1]
    token = jnp.broadcast_to(token[:, None], (*sees.shape[:2], size))
    depth = jnp.sum(sees, axis=-1, dtype=jnp.int32) - 1
    return jnp.take_along_axis(token, visible_slots, axis=-1), depth


def _prompts(decoder: BeamDecoder, options: Options, state: State) -> Context:
    """The context of the rows before any hypothesis."""
    prompt, length = state.prompt, state.prompt_length
    encoder = prompt[:, :0], jnp.zeros_like(length)
    if prefix_length := state.head.shape[1]:
        encoder, prompt, length = (prompt, length), state.head, jnp.full_like(length, prefix_length)
    limit = length + decoder.max_new_tokens
    active = state.search.active
    return Context(*encoder, prompt, length, length, limit, jnp.zeros_like(length), active, options)
