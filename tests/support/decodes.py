"""Running decodes in tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scripted import trace_scripts

from specjax.decoding.loop import begin, generate
from specjax.decoding.round import propose, round_, verify
from specjax.decoding.state import Decoder, Generation, State
from specjax.decoding.strategy import Strategy
from specjax.logits.settings import apply_settings


def inputs(prompts: Sequence[Sequence[int]], limit: int, seed: int = 0):
    """(prompt, prompt_length, keys, limit) of equal-budget rows."""
    width = max(map(len, prompts))
    padded = np.array([[*p, *[0] * (width - len(p))] for p in prompts], np.int32)
    length = np.array([len(p) for p in prompts], np.int32)
    index = jnp.arange(len(prompts))
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), i))(index)
    return jnp.asarray(padded), jnp.asarray(length), keys, jnp.full(len(prompts), limit, jnp.int32)


def decoder(models, strategy: Strategy, max_new_tokens: int) -> Decoder:
    """The static side of a decode."""
    return strategy.decoder(models, max_new_tokens)


def run(
    models, params, strategy: Strategy, prompts, limit: int, seed: int = 0, own=None, settings=None
) -> Generation:
    """A whole decode of `prompts` with `limit` new tokens per row.

    `own` are the prompts of models with another vocabulary, by name, `settings` those of
    generation.
    """
    models, params = trace_scripts(models, params)
    made = decoder(models, strategy, limit)
    kept = {name: params[name] for name in made.inputs}
    options = with_own(strategy, own)
    options = apply_settings(options, settings or {}, made.target_model)
    return generate(made, kept, *inputs(prompts, limit, seed), options)


def with_own(strategy: Strategy, own):
    """The strategy's options with prompts of some models in their own ids, by name."""
    spelled = {name: inputs(rows, 0)[:2] for name, rows in (own or {}).items()}
    return strategy.options().replace(prompts=spelled)


def texts(generation: Generation) -> list[list[int]]:
    """Generated tokens of every row."""
    tokens = np.asarray(generation.tokens)
    bounds = zip(np.asarray(generation.begin), np.asarray(generation.length), strict=True)
    return [tokens[row, b:n].tolist() for row, (b, n) in enumerate(bounds)]


@functools.partial(jax.jit, static_argnames="made")
def one_round(made: Decoder, params, state: State) -> State:
    """A single jitted round."""
    return round_(made, made.env(params), state)


@functools.partial(jax.jit, static_argnames="made")
def first_state(made: Decoder, params, prompt, length, keys, limit, options) -> State:
    """The jitted state before the first round."""
    return begin(made, params, prompt, length, keys, limit, options)


@functools.partial(jax.jit, static_argnames="made")
def propose_jitted(made: Decoder, params, state: State):
    """What `propose` gives in a state, jitted: its draft first."""
    return propose(made, made.env(params), state)


__all__ = [
    "decoder",
    "propose_jitted",
    "first_state",
    "inputs",
    "one_round",
    "propose",
    "run",
    "texts",
    "verify",
    "with_own",
]
