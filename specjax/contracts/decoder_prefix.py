"""Decoder prefixes, fed once to every model; the target chooses among alternatives."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Int

from specjax.contracts.context import Context
from specjax.contracts.env import Bound
from specjax.models.base import Cache, LanguageModel, Prompts
from specjax.models.info import ForcedToken
from specjax.models.vocabularies import OtherVocabulary, unwrap
from specjax.sampling import argmax


def choose_decoder_prefix(
    target: Bound, cache: Cache, prefix: tuple[ForcedToken, ...]
) -> Int[Array, "B N"]:
    """Returns the decoder prefix [B, N], with the most probable token of each choice.

    `cache` holds the prompts only. This is Whisper's language detection: Radford et al. (2023),
    section 2.3.
    """
    tokens = jnp.zeros((len(cache.length), 0), jnp.int32)
    for forced in prefix:
        options = jnp.array(forced, jnp.int32).reshape(-1)
        best = jnp.zeros_like(cache.length)
        if len(options) > 1:
            at = jnp.full_like(cache.length, tokens.shape[1] - 1)[:, None]
            logits = target.extend(tokens, cache, at=at)[0].logits[:, 0]
            best = argmax(logits[:, options])
        tokens = jnp.concatenate([tokens, options[best][:, None]], axis=1)
    return tokens


def make_copy_source(
    model: LanguageModel, prompt: Prompts, length: Int[Array, " B"]
) -> tuple[Int[Array, "B S"], Int[Array, " B"]]:
    """Returns prompts as tokens [B, S] to copy from, and their length [B].

    Empty for audio and for prompts in another vocabulary.
    """
    if model.info.frames is None and model.info.source_vocab is None:
        return prompt, length
    return jnp.zeros((len(length), 0), jnp.int32), jnp.zeros_like(length)


def add_previous_text(context: Context, prefix: Int[Array, "B N"]) -> Context:
    """Starts the rows with the text before their audio, if any, and `prefix` [B, N].

    The token buffer has room for that text (`Options.previous`).
    """
    if context.options.previous is None:
        return context.replace(tokens=context.tokens.at[:, : prefix.shape[1]].set(prefix))
    text, length = context.options.previous
    slot = jnp.arange(text.shape[1] + prefix.shape[1])
    place = slot - length[:, None]
    before = jnp.take(text, slot, axis=1, mode="clip")
    after = jnp.take_along_axis(prefix, jnp.maximum(place, 0), axis=1, mode="clip")
    whole = jnp.where(place < 0, before, after)
    return context.replace(
        tokens=context.tokens.at[:, : len(slot)].set(whole),
        length=context.length + length,
        begin=context.begin + length,
        limit=context.limit + length,
    )


def prefill(
    model: Bound, cache: Cache, prefix: Int[Array, "B N"], length: Int[Array, " B"]
) -> Cache:
    """Feeds each row's first `length` - 1 tokens of `prefix` [B, N].

    The last token stays pending. A drafter of another vocabulary may have its own prefix.
    """
    tokens, own = prefix[:, :-1], unwrap(model.model)
    if isinstance(own, OtherVocabulary) and own.prefix:
        tokens, cache = own.apply_own_prefix(model.params, prefix, length, cache)
    elif prefix.shape[1] < 2:
        return cache
    no_logits = jnp.zeros((len(prefix), 0), jnp.int32)
    cache = model.extend(tokens, cache, at=no_logits)[1]
    return cache.replace(length=length - 1)
