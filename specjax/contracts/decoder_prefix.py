"""Decoder prefixes, fed once to every model; the target chooses among alternatives."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.contracts.context import Context
from specjax.contracts.env import Bound
from specjax.models.base import Cache, LanguageModel, Prompts
from specjax.models.info import ForcedToken
from specjax.models.vocabularies import OtherVocabulary, unwrap
from specjax.sampling import argmax

States = tuple[Float[Array, "B T D"], ...]
"""States at tokens of each requested decoder layer."""


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
    if model.info.input is None and model.info.source_vocab is None:
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

    The last token stays pending. A drafter of another vocabulary may have its own prefix; one that
    reads the target's states gets those of the prefix (`prefill_states`).
    """
    own = unwrap(model.model)
    if model.info.reads_states:
        return cache
    if isinstance(own, OtherVocabulary) and own.prefix:
        tokens, cache = own.apply_own_prefix(model.params, prefix, length, cache)
        return _feed(model, cache, tokens, length, ())[0]
    return prefill_states(model, cache, prefix, length, ())[0]


def prefill_states(
    target: Bound,
    cache: Cache,
    prefix: Int[Array, "B N"],
    length: Int[Array, " B"],
    layers: tuple[int, ...],
) -> tuple[Cache, States]:
    """Feeds the same tokens to a target; also returns its states [B, N - 1, D] after `layers`.

    There are none where no token is fed. Unused states cost nothing.
    """
    if prefix.shape[1] < 2:
        return cache, ()
    return _feed(target, cache, prefix[:, :-1], length, layers)


def _feed(
    model: Bound,
    cache: Cache,
    tokens: Int[Array, "B T"],
    length: Int[Array, " B"],
    layers: tuple[int, ...],
) -> tuple[Cache, States]:
    no_logits = jnp.zeros((len(tokens), 0), jnp.int32)
    output, cache = model.extend(tokens, cache, at=no_logits, features=layers)
    return cache.replace(length=length - 1), output.features
