"""A model without the ids that others do not have.

Vocabularies are padded to round widths (T5: 32,128 for 32,100 pieces), and models of one tokenizer
may be padded differently. What is decoded then are the ids that all have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading
from specjax.models.info import ModelInfo


@dataclasses.dataclass(frozen=True)
class Wrapped:
    """What is known of a `model` whatever ids it is heard and fed in."""

    model: LanguageModel

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def info(self) -> ModelInfo:
        return self.model.info


@dataclasses.dataclass(frozen=True)
class SharedVocabulary(Wrapped):
    """`model` with its logits cut to the first `vocab_size` ids."""

    model: LanguageModel
    vocab_size: int

    @property
    def info(self) -> ModelInfo:
        return dataclasses.replace(self.model.info, vocab_size=self.vocab_size)

    def init(self, key: jax.Array) -> Params:
        return self.model.init(key)

    def teach(
        self, params: Params, batch: Mapping[str, jax.Array], **how: Any
    ) -> tuple[jax.Array, ...]:
        whole = self.model.teach(params, batch, **how)
        return tuple(logits[..., : self.vocab_size] for logits in whole)

    def states(self, params: Params, batch: Mapping[str, jax.Array], **how: Any) -> jax.Array:
        return self.model.states(params, batch, **how)

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.read_out(params, hidden)[..., : self.vocab_size]

    def normed(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.normed(params, hidden)

    def output(self, params: Params, normed: jax.Array) -> jax.Array:
        return self.model.output(params, normed)[..., : self.vocab_size]

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params, tokens)

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        **wanted: Any,
    ) -> tuple[Cache, PromptReading]:
        return self.model.start(params, prompt, prompt_length, capacity, **wanted)

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        return self.model.keep(cache, path, count)

    def extend(
        self, params: Params, tokens: jax.Array, cache: Cache, **how: Any
    ) -> tuple[Output, Cache]:
        output, cache = self.model.extend(params, tokens, cache, **how)
        return output.replace(logits=output.logits[..., : self.vocab_size]), cache

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        return self.model.propagate(params, hidden, cache, layers)


def unwrapped(model: LanguageModel) -> LanguageModel:
    """The model with all its ids."""
    return model.model if isinstance(model, SharedVocabulary) else model


def with_shared_vocabulary(models: dict[str, LanguageModel]) -> dict[str, LanguageModel]:
    """Models that all have the same width, the smallest one's."""
    width = min(model.info.vocab_size for model in models.values())
    return {
        name: model if model.info.vocab_size == width else SharedVocabulary(model, width)
        for name, model in models.items()
    }
