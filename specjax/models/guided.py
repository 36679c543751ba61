"""Classifier-free guidance: a target that runs on each text with and without its prompt.

Sanchez et al., "Stay on topic with Classifier-Free Guidance" (2023), section 2.2, where
the text without prompt begins with the prompt's last token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading
from specjax.models.vocabularies import ModelWrapper


@dataclasses.dataclass(frozen=True)
class GuidedModel(ModelWrapper):
    """A decoder-only `model` with logits guided from unconditional to conditional by `scale`.

    Parameters, states and `read_out` are those of the conditional `model`, in decoding and with
    teacher forcing. The cache holds the model's cache of the text (`own`), and of the text from the
    prompt's last token on (`free`), which has `offset` [B] fewer slots.
    """

    model: LanguageModel
    scale: float

    def init(self, key: jax.Array) -> Params:
        return self.model.init(key)

    def states(self, params: Params, batch: Mapping[str, jax.Array], **how: Any) -> jax.Array:
        return self.model.states(params, batch, **how)

    def teach(
        self, params: Params, batch: Mapping[str, jax.Array], **how: Any
    ) -> tuple[jax.Array, ...]:
        return self.model.teach(params, batch, **how)

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.read_out(params, hidden)

    def apply_final_norm(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.apply_final_norm(params, hidden)

    def apply_lm_head(self, params: Params, normed: jax.Array) -> jax.Array:
        return self.model.apply_lm_head(params, normed)

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params, tokens)

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
        longest: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        read = prompt, prompt_length, capacity
        own, reading = self.model.start(
            params, *read, features=features, ahead=ahead, longest=longest
        )
        offset = prompt_length - 1
        last = jnp.take_along_axis(prompt, offset[:, None], axis=1, mode="clip")
        room = capacity - prompt.shape[1] + 1
        free, _ = self.model.start(params, last, jnp.ones_like(offset), room, ahead=ahead)
        return Cache({"own": own.data, "free": free.data, "offset": offset}, own.length), reading

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        position: jax.Array | None = None,
        visible: jax.Array | None = None,
        at: jax.Array | None = None,
        exit: int | None = None,
        **how: Any,
    ) -> tuple[Output, Cache]:
        """Extends both caches and guides the logits, except at early exits, which only draft."""
        own, free = _split_cache(cache)
        output, own = self.model.extend(
            params, tokens, own, position=position, visible=visible, at=at, exit=exit, **how
        )
        if exit is not None:
            return output, _join_caches(cache, own, free)
        if position is not None:
            position = position - cache.data["offset"][:, None]
        without, free = self.model.extend(
            params, tokens, free, position=position, visible=visible, at=at
        )
        logits = guide_logits(output.logits, without.logits, self.scale)
        return output.replace(logits=logits), _join_caches(cache, own, free)

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        own, free = (self.model.keep(one, path, count) for one in _split_cache(cache))
        return _join_caches(cache, own, free)

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        """Not supported: readers that need it are refused for guided targets."""
        raise NotImplementedError


def guide_logits(own: jax.Array, free: jax.Array, scale: float) -> jax.Array:
    """Computes guided log-probabilities [..., V]: free + scale * (own - free)."""
    own, free = jax.nn.log_softmax(own, axis=-1), jax.nn.log_softmax(free, axis=-1)
    return free + scale * (own - free)


def _split_cache(cache: Cache) -> tuple[Cache, Cache]:
    """Splits the cache into those of the text and of the text without its prompt."""
    data = cache.data
    return Cache(data["own"], cache.length), Cache(data["free"], cache.length - data["offset"])


def _join_caches(cache: Cache, own: Cache, free: Cache) -> Cache:
    return Cache({**cache.data, "own": own.data, "free": free.data}, own.length)
