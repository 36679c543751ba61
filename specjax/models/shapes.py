"""Parameter shapes without computation, and placeholder prompts.

Planning traces placeholders, and the stopwatch times calls on them.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from specjax.models.base import Cache, LanguageModel, Params
from specjax.models.info import Input


class Initializable(Protocol):
    """A hashable object that initializes parameters: a language model, heads, a policy."""

    def init(self, key: jax.Array) -> Any: ...


def get_parameter_shapes(model: Initializable) -> Any:
    """Returns the pytree of `model.init` with `jax.ShapeDtypeStruct` leaves.

    Cached: tracing takes almost a second, and loading, planning and sharding all need the shapes.
    """
    return jax.tree.map(
        lambda leaf: leaf, _trace_init(model)
    )  # new dicts, which the caller may change


@functools.lru_cache(maxsize=64)
def _trace_init(model: Initializable) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0))


def start_cache(
    model: LanguageModel,
    params: Params,
    prompt: jax.Array,
    prompt_length: jax.Array,
    capacity: int,
    **wanted: Any,
) -> Cache:
    """Returns the cache of `start`; a model that borrows an encoder gets zeros."""
    if model.info.borrows_encoder:
        given = model.config.encoder_states
        shape = len(prompt), given.count, given.width
        wanted["encoded"] = jnp.zeros(shape, model.config.dtype)
    return model.start(params, prompt, prompt_length, capacity, **wanted)[0]


def make_placeholder_prompts(given: Input | None, rows: int, width: int) -> jax.Array:
    """Returns zeros as prompts [B, P] of `width` tokens, or as audio or images [B, P, M].

    P is `width` where prompts of the given shape may have it, else the next that they may have.
    """
    if given is None:
        return jnp.zeros((rows, width), jnp.int32)
    return jnp.zeros((rows, min(max(width, given.fewest), given.count), given.width), jnp.float32)
