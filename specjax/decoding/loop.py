"""The decode loop: rounds, until every row is done.

One jitted `lax.while_loop` serves every drafter, reader and rule; autoregressive decoding is the
drafter that proposes nothing. One call of `generate` is one host dispatch.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context, Options
from specjax.contracts.decoder_prefix import (
    add_previous_text,
    choose_decoder_prefix,
    prefill,
    prefill_states,
)
from specjax.contracts.drafter import CALLS, STOP
from specjax.contracts.env import Bound
from specjax.contracts.reader import WIDTH
from specjax.contracts.rows import ROUNDS, make_zeros, run_if
from specjax.decoding.parts import Parts
from specjax.decoding.round import round_
from specjax.decoding.state import Decoder, Generation, State, first_context, previous_width
from specjax.decoding.trace import OWN, Trace, make_empty_trace
from specjax.models.base import Cache


@functools.partial(jax.jit, static_argnames="decoder")
def generate(
    decoder: Decoder,
    params: dict[str, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    keys: jax.Array,
    limit: jax.Array,
    options: Options,
) -> Generation:
    """Decodes every row of prompt [B, P], or of audio input [B, P, M], to its end.

    `keys` [B] typed PRNG keys, one per row; `limit` [B] new tokens per row, at most
    `decoder.max_new_tokens` (0 decodes nothing); `params` holds `decoder.inputs`.
    """
    state = begin(decoder, params, prompt, prompt_length, keys, limit, options)
    generation = finish(advance(decoder, params, state, None))
    return decoder.layout.replicate(generation) if decoder.layout else generation


def begin(
    decoder: Decoder,
    params: dict[str, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    keys: jax.Array,
    limit: jax.Array,
    options: Options,
    longest: int | None = None,
    parts: Parts | None = None,
) -> State:
    """The state before the first round: prefilled caches, one pending token per row in no cache.

    The drafter's memory is initialized after all models have read the prompts. Models that no row's
    arm needs read nothing. `longest` bounds the prompts' lengths (`LanguageModel.start`); `parts`
    are prompts that were read before (`decoding.parts`).
    """
    env = decoder.env(params)
    context = first_context(decoder, prompt, prompt_length, limit, options)
    read = prompt, prompt_length, context.tokens.shape[1]
    features = decoder.drafter.spec.features
    wanted = _list_wanted(decoder, options, longest)
    if parts is None:
        cache, reading = env.target.start(*read, features=features, **wanted[decoder.target])
    else:
        cache, reading = parts.caches[decoder.target], parts.reading
    head = choose_decoder_prefix(env.target, cache, decoder.target_model.info.prefix)
    context = add_previous_text(context, head)
    prefix = context.tokens[:, : head.shape[1] + previous_width(options)]
    cache, states = prefill_states(env.target, cache, prefix, context.begin, features)
    reading = reading.replace(features=reading.features or states)
    caches = {decoder.target: cache} if parts is None else {**parts.caches, decoder.target: cache}
    choice = decoder.drafter.choice
    needed = choice.find_needed_models(env, context, reading, keys) if choice else {}
    for name in decoder.used:
        if name in caches:
            continue
        given = wanted[name]
        if env[name].model.info.borrows_encoder:
            given["encoded"] = reading.encoded
        start = functools.partial(_start, env[name], read, given, prefix, context.begin)
        if name in needed:
            step = functools.partial(lambda start, _: start(), start)
            caches[name] = run_if(needed[name], step, make_zeros(start))
        else:
            caches[name] = start()
    memory, caches = decoder.drafter.begin(env, caches, context, reading, keys)
    stops, reached = options.stops, None
    if stops is not None:
        reached = stops.begin(context.tokens[:, : prompt.shape[1]], context.length)
    trace = _begin_trace(decoder, context)
    return place(decoder, State(context, caches, memory, keys, trace, reached))


def place(decoder: Decoder, state: State) -> State:
    """The state with its rows and heads sharded over the decoder's mesh, if it has one."""
    if decoder.layout is None:
        return state
    layout = decoder.layout
    caches = {name: layout.cache(name, cache) for name, cache in state.caches.items()}
    options, most = state.context.options, state.trace.most
    context = state.context.replace(options=options.replace(stops=None))
    trace = state.trace.replace(most=None)
    placed = layout.rows(state.replace(context=context, caches={}, trace=trace))
    stops = options.stops and options.stops.map_rows(layout.rows)
    options = placed.context.options.replace(stops=stops)
    return placed.replace(
        context=placed.context.replace(options=options),
        caches=caches,
        trace=placed.trace.replace(most=most),
    )


def _list_wanted(
    decoder: Decoder, options: Options, longest: int | None
) -> dict[str, dict[str, Any]]:
    """Options of `LanguageModel.start` for each model that runs."""
    shared: dict[str, Any] = {"ahead": decoder.ahead}
    if longest is not None:
        shared["longest"] = longest
    own = {name: {"own": prompt} for name, prompt in options.prompts.items()}
    return {name: {**shared, **own.get(name, {})} for name in decoder.used}


def _begin_trace(decoder: Decoder, context: Context) -> Trace:
    """The empty record of the rows."""
    rows, buffer = context.tokens.shape
    width, names = decoder.drafter.spec.width, columns(decoder)
    trace = make_empty_trace(rows, decoder.max_new_tokens, width, buffer, names)
    if not decoder.logprobs:
        return trace
    return trace.replace(logprobs=jnp.zeros((rows, buffer), jnp.float32))


def _start(
    model: Bound, read: tuple, wanted: dict[str, Any], prefix: jax.Array, length: jax.Array
) -> Cache:
    return prefill(model, model.start(*read, **wanted)[0], prefix, length)


def columns(decoder: Decoder) -> tuple[str, ...]:
    """Names of the trace's columns: the loop's own, and what drafter and reader log."""
    runs = (CALLS + part for part in decoder.parts)
    logged = decoder.drafter.spec.columns + decoder.reader.columns
    return tuple(dict.fromkeys((*OWN, STOP, *runs, WIDTH, *logged)))


def advance(
    decoder: Decoder,
    params: dict[str, Any],
    state: State,
    rounds: jax.Array | int | None,
    ends: jax.Array | None = None,
) -> State:
    """Runs `rounds` rounds, or all that are needed (None), while any row is active.

    It also stops as soon as `ends` [] rows have ended, if that is given. If rows choose among
    alternative drafters, each alternative has its own loop; loops without rows cost nothing.
    """
    last = None if rounds is None else state.trace.rounds + rounds
    fewest = None if ends is None else jnp.sum(state.context.active) - ends

    def run(decoder: Decoder, state: State, row_mask: jax.Array | bool = True) -> State:
        env = decoder.env(params)

        def is_unfinished(state: State) -> jax.Array:
            goes_on = jnp.any(state.context.active) & row_mask
            if last is not None:
                goes_on &= state.trace.rounds < last
            if fewest is not None:
                goes_on &= jnp.sum(state.context.active) > fewest
            return goes_on

        turn = functools.partial(round_, decoder, env)
        used = {name: state.caches[name] for name in decoder.used}
        with jax.named_scope(ROUNDS):
            after = jax.lax.while_loop(is_unfinished, turn, state.replace(caches=used))
        return after.replace(caches={**state.caches, **after.caches})

    choice = decoder.drafter.choice
    alternatives = choice.list_alternatives(state.context.length.shape[0]) if choice else ()
    if choice is None or not alternatives:
        return run(decoder, state)
    chosen = choice.get_alternative(state.memory)
    for index, one in enumerate(alternatives):
        reader = decoder.reader if decoder.reader.overrides else one.reader
        baseline = dataclasses.replace(decoder, drafter=one.drafter, reader=reader)
        state = run(baseline, state, chosen == index)
    return state


begin_jitted = jax.jit(begin, static_argnames="decoder")
"""`begin` as one dispatch, for streaming."""

advance_jitted = jax.jit(advance, static_argnames=("decoder", "rounds"), donate_argnames="state")
"""`advance` by a fixed number of rounds as one dispatch; donates the given state."""


def finish(state: State) -> Generation:
    """The result of a final state."""
    context = state.context
    return Generation(context.tokens, context.begin, context.length, state.trace, state.memory)
