"""Shapes of parameters without computing them, and placeholder prompts where shapes alone count.

Planning traces placeholders, and a stopwatch times calls after them.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from specjax.models.base import Cache, LanguageModel, Params
from specjax.models.info import Frames


class Initializable(Protocol):
    """A hashable description with fresh parameters: a language model, heads on it, a policy."""

    def init(self, key: jax.Array) -> Any: ...


def parameter_shapes(model: Initializable) -> Any:
    """The pytree of `model.init` with `jax.ShapeDtypeStruct` leaves.

    Tracing an initialisation takes a good part of a second, and loading, planning and sharding a
    model all ask; so what was traced is kept.
    """
    return jax.tree.map(lambda leaf: leaf, _traced(model))  # the caller's own dicts


@functools.lru_cache(maxsize=64)
def _traced(model: Initializable) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0))


def start_cache(
    model: LanguageModel,
    params: Params,
    prompt: jax.Array,
    prompt_length: jax.Array,
    capacity: int,
    **wanted: Any,
) -> Cache:
    """The cache of `start` without a target: one that borrows an encoder is given zeros."""
    if model.info.borrows_encoder and (frames := model.info.frames) is not None:
        config = model.config
        shape = len(prompt), frames.count // frames.stride, config.d_model
        wanted["encoded"] = jnp.zeros(shape, config.dtype)
    return model.start(params, prompt, prompt_length, capacity, **wanted)[0]


def make_silence(frames: Frames | None, rows: int, width: int) -> jax.Array:
    """Some prompts [B, P] of `width` tokens, or [B, P, M] of what is heard."""
    if frames is None:
        return jnp.zeros((rows, width), jnp.int32)
    return jnp.zeros((rows, frames.count, frames.width), jnp.float32)
