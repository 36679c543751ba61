"""Drafters whose vocabulary is not the target's: larger tables, other tokenizers, fewer tokens.

Vocabularies are padded to round widths (T5: 32,128 for 32,100 pieces), and models of one tokenizer
may be padded differently; what is decoded then are the ids that all have. Of another tokenizer,
token-level intersection (TLI; Timor et al. 2025, arXiv 2502.05202) restricts the drafter's
distributions to the tokens that both vocabularies have (docs/methods/cross_vocabulary.md).

The output layer of a small decoder over a large vocabulary is most of what a draft reads. EAGLE-3
drafters have a draft vocabulary for that reason (Li et al. 2025, arXiv 2503.01840); here it is cut
out of a whole model. A token that is not in it is never drafted: the target's own text and
distribution are unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Cache, LanguageModel, Output, OwnPrompt, Params, PromptReading
from specjax.models.info import ModelInfo
from specjax.models.layers import MASKED, tied_logits
from specjax.models.whisper import Whisper


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


def unwrap(model: LanguageModel) -> LanguageModel:
    """The model with all its ids."""
    return model.model if isinstance(model, SharedVocabulary) else model


def share_vocabulary(models: dict[str, LanguageModel]) -> dict[str, LanguageModel]:
    """Models that all have the same width, the smallest one's."""
    width = min(model.info.vocab_size for model in models.values())
    return {
        name: model if model.info.vocab_size == width else SharedVocabulary(model, width)
        for name, model in models.items()
    }


PREFIX = "prompt"
"""In a cache: the tokens that its slots begin with, in the model's ids."""


@dataclasses.dataclass(frozen=True)
class OtherVocabulary(Wrapped):
    """`model`, to whom `target`'s ids are spoken and who answers in them.

    Its parameters are those of the `model`, and two tables by the target's ids: `places` [V], the
    model's id of the same text, or one beyond its vocabulary where it has none, and `fed` [V], the
    one id that it is fed instead of a token. So a slot of its cache is a token of the text, as in
    every cache; decoder-only it is further on by as many slots (`offset` [B]) as its own spelling
    of the prompt is longer.

    A speech model may have a `prefix` of its own, as one of English only has no language token: its
    slots are then further on by as many as that is longer than the target's.
    """

    model: LanguageModel
    target: LanguageModel
    prefix: tuple[int, ...] = ()  # in the model's ids; empty: the target's, token by token

    @property
    def info(self) -> ModelInfo:
        own, target = self.model.info, self.target.info
        return dataclasses.replace(
            own,
            vocab_size=target.vocab_size,
            source_vocab=target.source_vocab,
            start_token=None if own.start_token is None else target.start_token,
            eos=target.eos,
            pad=target.pad,
        )

    def init(self, key: jax.Array) -> Params:
        """Fresh parameters and tables of nothing shared, for their shapes."""
        empty = jnp.zeros(self.info.vocab_size, jnp.int32)
        unknown = empty + self.model.info.vocab_size
        return {"model": self.model.init(key), "places": unknown, "fed": empty}

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return _to_target_ids(params, self.model.read_out(params["model"], hidden))

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params["model"], _to_own_ids(params, tokens))

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
        own: OwnPrompt | None = None,
    ) -> tuple[Cache, PromptReading]:
        """Reads `own` in place of the prompt, or without it the prompt token by token."""
        heard = self.info.frames is not None
        spelled, length = own or (prompt if heard else _to_own_ids(params, prompt), prompt_length)
        wanted = {"features": features, "ahead": ahead}
        offset = jnp.zeros_like(prompt_length)
        more = {}
        if self.info.start_token is None:
            offset, more = length - prompt_length, {PREFIX: spelled, "prompt_length": length}
            capacity += spelled.shape[1] - prompt.shape[1]
        capacity += max(self._ahead, 0)
        cache, reading = self.model.start(params["model"], spelled, length, capacity, **wanted)
        data = {"model": cache.data, "offset": offset, **more}
        return Cache(data, cache.length - offset), reading

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        position: jax.Array | None = None,
        **how: Any,
    ) -> tuple[Output, Cache]:
        own, fed = _own(cache), _to_own_ids(params, tokens)
        if PREFIX in cache.data:
            # A drafter's first call feeds again what ends the prompt: in the model's own spelling.
            slot = own.length[:, None] + jnp.arange(tokens.shape[1])
            spelled = jnp.take_along_axis(cache.data[PREFIX], slot, axis=1, mode="clip")
            fed = jnp.where(slot < cache.data["prompt_length"][:, None], spelled, fed)
        if position is not None:
            position = position + cache.data["offset"][:, None]
        output, own = self.model.extend(params["model"], fed, own, position=position, **how)
        return output.replace(logits=_to_target_ids(params, output.logits)), _with_cache(cache, own)

    def with_own_prefix(
        self, params: Params, prefix: jax.Array, length: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """What to feed of a text's `prefix` [B, N] of `length` [B], and the cache that reads it.

        What stands before the target's own prefix (a prompt) is fed token by token.
        """
        before = length - len(self.target.info.prefix)
        slot = jnp.arange(prefix.shape[1] + self._ahead)
        place = slot - before[:, None]
        spelled = jnp.take(_to_own_ids(params, prefix), slot, axis=1, mode="clip")
        own = jnp.take(jnp.array(self.prefix, jnp.int32), place, mode="clip")
        tokens = jnp.where(place < 0, spelled, own)
        offset = jnp.full_like(length, self._ahead)
        data = {"offset": offset, PREFIX: tokens, "prompt_length": length + self._ahead}
        return tokens[:, :-1], Cache({**cache.data, **data}, cache.length - self._ahead)

    @property
    def _ahead(self) -> int:
        """How much longer than the target's its own prefix is."""
        return len(self.prefix) - len(self.target.info.prefix) if self.prefix else 0

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        return _with_cache(cache, self.model.keep(_own(cache), path, count))

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        own = self.model.propagate(params["model"], hidden, _own(cache), layers)
        return _with_cache(cache, own)


def _to_target_ids(params: Params, logits: jax.Array) -> jax.Array:
    """The model's logits [..., V'] by the target's ids [..., V]; what it lacks is impossible."""
    return jnp.take(logits, params["places"], axis=-1, mode="fill", fill_value=MASKED)


def _to_own_ids(params: Params, tokens: jax.Array) -> jax.Array:
    return jnp.take(params["fed"], tokens, mode="clip")


def _own(cache: Cache) -> Cache:
    """The model's own cache, whose pointer counts the prompt in its own spelling."""
    return Cache(cache.data["model"], cache.length + cache.data["offset"])


def _with_cache(cache: Cache, own: Cache) -> Cache:
    data = {**cache.data, "model": own.data}
    return Cache(data, own.length - cache.data["offset"])


@dataclasses.dataclass(frozen=True)
class DraftVocabulary(Wrapped):
    """`model`, a Whisper, with the logits of its other tokens masked and never computed.

    Its parameters are those of the `model`, the embeddings `rows` [U, D] of the U tokens that it
    drafts, and `places` [V], of each token its row, U where it has none.
    """

    model: Whisper

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params["model"], tokens)

    def normed(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.normed(params["model"], hidden)

    def output(self, params: Params, normed: jax.Array) -> jax.Array:
        logits = tied_logits(normed, params["rows"], False)
        return _to_target_ids(params, logits)

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.output(params, self.normed(params, hidden))

    def start(
        self, params: Params, prompt: jax.Array, length: jax.Array, capacity: int, **wanted: Any
    ) -> tuple[Cache, PromptReading]:
        return self.model.start(params["model"], prompt, length, capacity, **wanted)

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        at: jax.Array | None = None,
        **how: Any,
    ) -> tuple[Output, Cache]:
        none = jnp.zeros((len(tokens), 0), jnp.int32)
        output, cache = self.model.extend(params["model"], tokens, cache, at=none, **how)
        # A Whisper's call always gives them.
        hidden: jax.Array = output.hidden  # pyright: ignore[reportAssignmentType]
        if at is not None:
            hidden = jnp.take_along_axis(hidden, at[..., None], axis=1, mode="clip")
        return output.replace(logits=self.read_out(params, hidden)), cache

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        return self.model.keep(cache, path, count)

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        return self.model.propagate(params["model"], hidden, cache, layers)


def draft_tokens(model: LanguageModel, count: int) -> np.ndarray:
    """The first `count` ids of a Whisper, which its tokenizer merged first, and EOS and times."""
    special = [token for token in range(model.info.eos[0], model.info.vocab_size)]
    return np.unique([*range(min(count, model.info.vocab_size)), *special])


def restrict_vocabulary(
    model: Whisper, params: Params, count: int
) -> tuple[DraftVocabulary, Params]:
    """The model that drafts `draft_tokens` only, and its parameters."""
    tokens = draft_tokens(model, count)
    places = np.full(model.info.vocab_size, len(tokens), np.int32)
    places[tokens] = np.arange(len(tokens))
    rows = params["embedding"][tokens]
    return DraftVocabulary(model), {"model": params, "rows": rows, "places": jnp.array(places)}
