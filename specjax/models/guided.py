"""A target under classifier-free guidance: it reads every text with its prompt and without.

Sanchez et al., "Stay on topic with Classifier-Free Guidance" (2023), section 2.2, where the prompt
left out is all but its last token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading
from specjax.models.vocabularies import Wrapped


@dataclasses.dataclass(frozen=True)
class Guided(Wrapped):
    """A decoder-only `model` whose log-probabilities go by `scale` from the free to its own.

    Its parameters are those of the `model`; so are states and what is read out of them, in a decode
    and teacher-forced, which know the prompt. The cache holds what the model remembers of each text
    (`own`), and of the text from the prompt's last token on (`free`), whose slots are fewer by
    `offset` [B].
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

    def normed(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.normed(params, hidden)

    def output(self, params: Params, normed: jax.Array) -> jax.Array:
        return self.model.output(params, normed)

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
    ) -> tuple[Cache, PromptReading]:
        read = prompt, prompt_length, capacity
        own, reading = self.model.start(params, *read, features=features, ahead=ahead)
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
        """The first layers alone, which only draft, are not guided."""
        own, free = _both(cache)
        output, own = self.model.extend(
            params, tokens, own, position=position, visible=visible, at=at, exit=exit, **how
        )
        if exit is not None:
            return output, _with_cache(cache, own, free)
        if position is not None:
            position = position - cache.data["offset"][:, None]
        without, free = self.model.extend(
            params, tokens, free, position=position, visible=visible, at=at
        )
        logits = guided_logits(output.logits, without.logits, self.scale)
        return output.replace(logits=logits), _with_cache(cache, own, free)

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        own, free = (self.model.keep(one, path, count) for one in _both(cache))
        return _with_cache(cache, own, free)

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        """Refused before: states of single layers are not guided."""
        raise NotImplementedError


def guided_logits(own: jax.Array, free: jax.Array, scale: float) -> jax.Array:
    """Log-probabilities [..., V] as far beyond the `free` ones as `scale` times the own are."""
    own, free = jax.nn.log_softmax(own, axis=-1), jax.nn.log_softmax(free, axis=-1)
    return free + scale * (own - free)


def _both(cache: Cache) -> tuple[Cache, Cache]:
    """The model's caches of the text, and of the text without its prompt."""
    data = cache.data
    return Cache(data["own"], cache.length), Cache(data["free"], cache.length - data["offset"])


def _with_cache(cache: Cache, own: Cache, free: Cache) -> Cache:
    return Cache({**cache.data, "own": own.data, "free": free.data}, own.length)
