"""Prefill of long prompts in chunks, which limits the memory for states."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import CHUNK
from specjax.models.base import Params
from specjax.models.layers import apply
from specjax.models.recurrent_caches import LayerCache

Reading = tuple[list[LayerCache], jax.Array, tuple[jax.Array, ...]]
"""Caches, embeddings [B, D] float32 and the requested features [B, P, D]."""


def read_in_chunks(
    module: nn.Module,
    params: Params,
    prompt: jax.Array,
    length: jax.Array,
    own: list[LayerCache],
    features: tuple[int, ...],
) -> Reading:
    """Reads prompts [B, P] of `length` [B] chunk by chunk with `module.read_on`.

    `own` are empty caches. Chunks have equal sizes for one program; the last is padded.
    """
    size = prompt.shape[1]
    count = -(-size // CHUNK)
    chunk = -(-size // count)
    prompt = jnp.pad(prompt, ((0, 0), (0, count * chunk - size)))

    def read_on(begin: jax.Array, own: list[LayerCache]) -> Reading:
        tokens = jax.lax.dynamic_slice_in_dim(prompt, begin, chunk, axis=1)
        start = jnp.full_like(length, begin)
        return apply(module, "read_on", params, tokens, own, start, length, features=features)

    def step(number: jax.Array, found: Reading) -> Reading:
        own, embedding, taken = found
        begin = number * chunk
        own, here, states = read_on(begin, own)
        is_here = (length > begin) & (length <= begin + chunk)
        embedding = jnp.where(is_here[:, None], here, embedding)
        return own, embedding, _write_features(taken, states, begin)

    _, embedding, states = jax.eval_shape(read_on, 0, own)
    nothing: Any = jax.tree.map(
        lambda x: jnp.zeros((x.shape[0], count * chunk, *x.shape[2:]), x.dtype), states
    )
    first = own, jnp.zeros(embedding.shape, embedding.dtype), nothing
    own, embedding, taken = jax.lax.fori_loop(0, count, step, first)
    return own, embedding, tuple(x[:, :size] for x in taken)


def _write_features(
    taken: tuple[jax.Array, ...], states: tuple[jax.Array, ...], begin: jax.Array
) -> tuple[jax.Array, ...]:
    """Writes features of a chunk [B, T, D] to `taken` [B, P, D] from `begin` on."""
    pairs = zip(taken, states, strict=True)
    return tuple(jax.lax.dynamic_update_slice_in_dim(x, new, begin, axis=1) for x, new in pairs)
