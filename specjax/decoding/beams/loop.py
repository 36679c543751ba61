"""The loop of a beam search: draft, read, step, until every row is done.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), appendix on
beam search. One call of `search` is one host dispatch. Letters: B batch rows, W beams, N nodes of a
round, X candidates of a node.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Options
from specjax.contracts.decoder_prefix import choose_decoder_prefix, make_copy_source, prefill
from specjax.contracts.env import Env
from specjax.decoding.beams.drafting import catch_up, draft
from specjax.decoding.beams.settings import process_logits
from specjax.decoding.beams.state import BeamDecoder, Search, State, first_search
from specjax.decoding.beams.step import Candidates, Scoring, beam_step, candidates
from specjax.decoding.beams.trie import Nodes, feed, live_nodes, rewind_cache


@functools.partial(jax.jit, static_argnames="decoder")
def search(
    decoder: BeamDecoder,
    params: dict[str, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    active: jax.Array,
    scoring: Scoring,
) -> Search:
    """Beam search after every row of prompt [B, P]; rows that are not `active` [B] stay empty."""
    state = begin(decoder, params, prompt, prompt_length, active)
    return advance(decoder, params, state, scoring, None).search


def advance(
    decoder: BeamDecoder, params: dict[str, Any], state: State, scoring: Scoring, rounds: int | None
) -> State:
    """Runs `rounds` rounds, or all that are needed (None), while any row is active."""
    turn = functools.partial(round_, decoder, decoder.env(params), scoring)

    def is_unfinished(carry: tuple[jax.Array, State]) -> jax.Array:
        done, state = carry
        active = jnp.any(state.search.active)
        return active if rounds is None else active & (done < rounds)

    def step(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
        return carry[0] + 1, turn(carry[1])

    return jax.lax.while_loop(is_unfinished, step, (jnp.int32(0), state))[1]


def begin(
    decoder: BeamDecoder,
    params: dict[str, Any],
    prompt: jax.Array,
    length: jax.Array,
    active: jax.Array,
) -> State:
    """The state before the first round: prompts read, one hypothesis of no tokens.

    Sliding windows do not use ring buffers: slots of a trie are not positions.
    """
    env, head = decoder.env(params), decoder.target_model.info.prefix
    capacity = decoder.slots + (len(head) - 1 if head else prompt.shape[1])
    caches = {name: env[name].start(prompt, length, capacity)[0] for name in decoder.used}
    if not head:
        tokens = prompt[:, :0]
        pending = jnp.take_along_axis(prompt, length[:, None] - 1, axis=1)[:, 0]
    else:
        tokens = choose_decoder_prefix(env.target, caches[decoder.target], head)
        whole = tokens, jnp.full_like(length, tokens.shape[1])
        caches = {name: prefill(env[name], cache, *whole) for name, cache in caches.items()}
        pending = tokens[:, -1]
    first = {name: cache.length for name, cache in caches.items()}
    text = make_copy_source(decoder.target_model, prompt, length)
    return State(first_search(decoder, pending, active), caches, first, *text, head=tokens)


begin_jitted = jax.jit(begin, static_argnames="decoder")
"""`begin` as one dispatch, for streaming."""

advance_jitted = jax.jit(advance, static_argnames=("decoder", "rounds"), donate_argnames="state")
"""`advance` by a fixed number of rounds as one dispatch; donates the given state."""


def round_(decoder: BeamDecoder, env: Env, scoring: Scoring, state: State) -> State:
    """One target call, and the exact beam steps that it allows: at least one."""
    caches = {
        name: rewind_cache(cache, state.begin[name], decoder, state.search)
        for name, cache in state.caches.items()
    }
    state = state.replace(caches=caches)
    nodes = live_nodes(decoder, state.search)
    if decoder.length:
        nodes, state = draft(decoder, env, scoring.options, state)
    found, state = read(decoder, env, scoring.options, state, nodes)
    search, path = walk_nodes(decoder, scoring, state.search, nodes, found)
    search = search.replace(rounds=search.rounds + state.search.active)
    if not decoder.length:  # the walked nodes are all nodes and already in place
        return state.replace(search=search)
    if decoder.drafter.models:
        whole = search.active & (search.step - state.search.step > decoder.length)
        state = catch_up(decoder, env, state, nodes, whole)
        drafts = decoder.length * state.search.active + whole
        search = search.replace(drafts=search.drafts + drafts)
    return keep(decoder, env, state, search, path)


def read(
    decoder: BeamDecoder, env: Env, options: Options, state: State, nodes: Nodes
) -> tuple[Candidates, State]:
    """The target's candidates after every node, in one call."""
    name = decoder.target
    fed = decoder, env.target, state.search, state.caches[name], state.begin[name], nodes
    logits, cache = feed(*fed)
    adjust = process_logits(decoder, options, state, nodes, nodes.sees)
    found = candidates(logits, decoder.candidates, adjust=adjust)
    return found, state.replace(caches={**state.caches, name: cache})


class Walk(struct.PyTreeNode):
    """Exact steps among the nodes of a round."""

    search: Search
    at: jax.Array  # [B, W] int32: the node of each live hypothesis
    path: jax.Array  # [B, N] int32: the nodes of the hypotheses of every completed step
    going: jax.Array  # [B] bool: the target has read all live hypotheses


def walk_nodes(
    decoder: BeamDecoder, scoring: Scoring, search: Search, nodes: Nodes, found: Candidates
) -> tuple[Search, jax.Array]:
    """Beam steps while all live hypotheses are nodes; also returns the walked nodes [B, N]."""
    rows, size = nodes.token.shape
    beams = decoder.beams
    eos, row = decoder.target_model.info.eos, jnp.arange(rows)[:, None]

    def step(walk: Walk) -> Walk:
        search = walk.search
        here = jax.tree.map(lambda x: x[row, walk.at], found)
        live, finished, active = beam_step(
            scoring, eos, search.live.score, search.step, here, search.finished
        )
        parent = jnp.take_along_axis(walk.at, live.rank, axis=1)
        same = (nodes.parent[:, None] == parent[..., None]) & (
            nodes.token[:, None] == live.token[..., None]
        )
        place = (search.step - first)[:, None] * beams + jnp.arange(beams)
        after = Walk(
            search=_advance_search(decoder, search, live).replace(finished=finished, active=active),
            at=jnp.argmax(same, axis=-1).astype(jnp.int32),
            path=walk.path.at[row, place].set(walk.at, mode="drop"),
            going=active & jnp.all(jnp.any(same, axis=-1), axis=-1),
        )
        return _where(walk.going, after, walk)

    first = search.step
    at = jnp.broadcast_to(jnp.arange(beams, dtype=jnp.int32), (rows, beams))
    path = jnp.zeros((rows, size), jnp.int32)
    walk = Walk(search, at, path, search.active)
    walk = jax.lax.while_loop(lambda walk: jnp.any(walk.going), step, walk)
    return walk.search, walk.path


def keep(decoder: BeamDecoder, env: Env, state: State, search: Search, path: jax.Array) -> State:
    """The `search` after a round from `state`; moves the walked nodes together in all caches."""
    count = (search.step - state.search.step) * decoder.beams
    path = path[:, : (decoder.length + 1) * decoder.beams]
    caches = {
        name: env[name].model.keep(
            rewind_cache(cache, state.begin[name], decoder, state.search), path, count
        )
        for name, cache in state.caches.items()
    }
    return state.replace(search=search, caches=caches)


def _advance_search(decoder: BeamDecoder, search: Search, live: Any) -> Search:
    """The search with its next live hypotheses added to the tables."""
    row = jnp.arange(len(search.step))
    step = search.step + 1
    left = (search.step * decoder.beams)[:, None] + live.rank
    visible_slots = jnp.take_along_axis(search.visible_slots, live.rank[..., None], axis=1)
    return search.replace(
        step=step,
        live=live,
        visible_slots=visible_slots | (left[..., None] == jnp.arange(decoder.slots)),
        tokens=search.tokens.at[row, step].set(live.token, mode="drop"),
        ranks=search.ranks.at[row, step].set(live.rank, mode="drop"),
    )


def _where(mask: jax.Array, new: Any, old: Any) -> Any:
    """Rows of `new` where the mask [B] holds, else of `old`."""

    def one(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(one, new, old)
