"""Prompts and encoder states that stand in for real ones where shapes alone count.

Planning traces them, and a stopwatch times calls behind them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.base import Cache, LanguageModel, Params
from specjax.models.info import Frames


def started(
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


def silence(frames: Frames | None, rows: int, width: int) -> jax.Array:
    """Some prompts [B, P] of `width` tokens, or [B, P, M] of what is heard."""
    if frames is None:
        return jnp.zeros((rows, width), jnp.int32)
    return jnp.zeros((rows, frames.count, frames.width), jnp.float32)
