"""Prompts that are read part after part, so that the rounds of other rows go on between.

For decoder-only models: an encoder needs the whole prompt.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.rows import Caches, make_zeros
from specjax.decoding.state import Decoder
from specjax.models.base import PromptReading
from specjax.models.vocabularies import reads_in_parts

PART = 256
"""Tokens of a part, by default."""


class Parts(struct.PyTreeNode):
    """What was read of prompts [N, W]."""

    caches: Caches  # of the models that read prompts
    reading: PromptReading  # of the target; features [N, W, D]


def can_read_in_parts(decoder: Decoder) -> bool:
    """Whether all models that read prompts can read them in parts."""
    models = dict(decoder.models)
    reading = [models[name] for name in decoder.used if not models[name].info.reads_states]
    return all(map(reads_in_parts, reading))


@functools.partial(jax.jit, static_argnames="decoder")
def open_parts(
    decoder: Decoder, params: dict[str, Any], prompt: jax.Array, length: jax.Array
) -> Parts:
    """Empty caches and outputs for prompts [N, W] of `length` [N]."""
    env, models = decoder.env(params), dict(decoder.models)
    capacity = decoder.buffer(prompt.shape[1])
    caches, reading = {}, None
    for name in decoder.used:
        if models[name].info.reads_states:
            continue
        features = decoder.drafter.spec.features if name == decoder.target else ()
        wanted = {"features": features, "ahead": decoder.ahead}
        start = functools.partial(env[name].start, prompt, length, capacity, **wanted)
        caches[name], read = make_zeros(start)
        reading = read if name == decoder.target else reading
    assert reading is not None
    return Parts(caches, reading)


@functools.partial(jax.jit, static_argnames=("decoder", "size"), donate_argnames="parts")
def read_part(
    decoder: Decoder,
    params: dict[str, Any],
    parts: Parts,
    prompt: jax.Array,
    length: jax.Array,
    begin: jax.Array,
    size: int = PART,
) -> Parts:
    """Reads `size` tokens of prompts [N, W] from position `begin` [] on; donates the parts.

    `begin` is a multiple of `size`.
    """
    padded = jnp.pad(prompt, ((0, 0), (0, -prompt.shape[1] % size)))
    tokens = jax.lax.dynamic_slice_in_dim(padded, begin, size, axis=1)
    models, reading, caches = dict(decoder.models), parts.reading, {}
    for name, cache in parts.caches.items():
        model = models[name]
        assert reads_in_parts(model)
        features = decoder.drafter.spec.features if name == decoder.target else ()
        given = params[name], tokens, cache, begin, length
        caches[name], read = model.read_part(*given, features=features)
        if name == decoder.target:
            reading = _join(reading, read, begin, length, size)
    return Parts(caches, reading)


def _join(
    whole: PromptReading, part: PromptReading, begin: jax.Array, length: jax.Array, size: int
) -> PromptReading:
    """The outputs with those of the part from position `begin` [] on."""
    ends = (length > begin) & (length <= begin + size)

    def write(states: jax.Array, new: jax.Array) -> jax.Array:
        width = states.shape[1]
        padded = jnp.pad(states, ((0, 0), (0, -width % size), (0, 0)))
        return jax.lax.dynamic_update_slice_in_dim(padded, new, begin, axis=1)[:, :width]

    return whole.replace(
        embedding=jnp.where(ends[:, None], part.embedding, whole.embedding),
        features=tuple(map(write, whole.features, part.features)),
    )
