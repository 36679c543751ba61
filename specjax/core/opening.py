"""What texts begin with: fed once to every model, and chosen by the target where it is open."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.core.env import Bound
from specjax.models.base import Cache, Forced, LanguageModel
from specjax.sampling import argmax


def chosen_head(target: Bound, cache: Cache, head: tuple[Forced, ...]) -> jax.Array:
    """The tokens [B, N] that rows begin with; where there are several, the likeliest one there.

    `cache` is empty, behind the prompts. So Whisper detects a language: Radford et al. (2023),
    section 2.3.
    """
    tokens = jnp.zeros((len(cache.length), 0), jnp.int32)
    for forced in head:
        options = jnp.array(forced, jnp.int32).reshape(-1)
        best = jnp.zeros_like(cache.length)
        if len(options) > 1:
            at = jnp.full_like(cache.length, tokens.shape[1] - 1)[:, None]
            logits = target.extend(tokens, cache, at=at)[0].logits[:, 0]
            best = argmax(logits[:, options])
        tokens = jnp.concatenate([tokens, options[best][:, None]], axis=1)
    return tokens


def as_text(model: LanguageModel, prompt: jax.Array, length: jax.Array) -> tuple[jax.Array, ...]:
    """Prompts as a text to copy from, [B, S], and its length [B].

    Empty where they are heard, or are in a vocabulary of their own.
    """
    if model.frames is None and model.source_vocab is None:
        return prompt, length
    return jnp.zeros((len(length), 0), jnp.int32), jnp.zeros_like(length)


def begun(model: Bound, cache: Cache, head: jax.Array) -> Cache:
    """The cache behind all but the last token of `head` [B, N], which is pending."""
    if head.shape[1] < 2:
        return cache
    no_logits = jnp.zeros((len(head), 0), jnp.int32)
    return model.extend(head[:, :-1], cache, at=no_logits)[1]
