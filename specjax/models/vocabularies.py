"""Drafters whose vocabulary is not the target's: larger tables, other tokenizers, fewer tokens.

Vocabularies are padded to round widths (T5: 32,128 for 32,100 pieces), and models of one tokenizer
may be padded differently; only the ids of all models are then decoded. For a drafter with another
tokenizer, token-level intersection (TLI; Timor et al. 2025, arXiv 2502.05202) restricts its
distributions to the tokens of both vocabularies (docs/methods/cross_vocabulary.md).

The output layer of a small decoder over a large vocabulary accounts for most of the memory traffic
of a draft. EAGLE-3 drafters therefore have a draft vocabulary (Li et al. 2025, arXiv 2503.01840);
here it is selected from a whole model's. Other tokens are never drafted; the target's text and
distribution are unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Cache, LanguageModel, Output, OwnPrompt, Params, PromptReading
from specjax.models.causal import Causal
from specjax.models.info import ModelInfo
from specjax.models.layers import MASKED, compute_tied_logits
from specjax.models.whisper import Whisper


@dataclasses.dataclass(frozen=True)
class ModelWrapper:
    """Base class of models that wrap another `model`."""

    model: LanguageModel

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def info(self) -> ModelInfo:
        return self.model.info


@dataclasses.dataclass(frozen=True)
class SharedVocabulary(ModelWrapper):
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

    def apply_final_norm(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.apply_final_norm(params, hidden)

    def apply_lm_head(self, params: Params, normed: jax.Array) -> jax.Array:
        return self.model.apply_lm_head(params, normed)[..., : self.vocab_size]

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

    def read_part(self, params: Params, *part: Any, **how: Any) -> tuple[Cache, PromptReading]:
        assert isinstance(self.model, Causal)
        return self.model.read_part(params, *part, **how)

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


def reads_in_parts(model: LanguageModel) -> TypeGuard[Causal | SharedVocabulary]:
    """Returns whether prompts can be read part after part (`Causal.read_part`)."""
    return isinstance(unwrap(model), Causal)


def unwrap(model: LanguageModel) -> LanguageModel:
    """Returns the model without a cut vocabulary."""
    return model.model if isinstance(model, SharedVocabulary) else model


def share_vocabulary(models: dict[str, LanguageModel]) -> dict[str, LanguageModel]:
    """Cuts the vocabularies of all models to the smallest one's size."""
    width = min(model.info.vocab_size for model in models.values())
    return {
        name: model if model.info.vocab_size == width else SharedVocabulary(model, width)
        for name, model in models.items()
    }


PREFIX = "prompt"
"""Cache entry: the tokens of the first slots, in the model's ids."""


@dataclasses.dataclass(frozen=True)
class OtherVocabulary(ModelWrapper):
    """A `model` that reads and predicts ids of `target`'s vocabulary.

    Its parameters are those of the `model`, and two tables by target id: `places` [V], the model's
    id of the same text, or an id beyond its vocabulary if there is none, and `fed` [V], the id that
    the model is fed for the token. A cache slot thus corresponds to a token of the text, as in
    every cache; for a decoder-only model, slots are shifted by `offset` [B], because its
    tokenization of the prompt may be longer.

    A speech model may have its own `prefix`, such as an English-only model without language tokens;
    slots are then shifted by the difference in length.
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
        """Initializes parameters, with tables of no shared token, for their shapes."""
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
        longest: int | None = None,
        own: OwnPrompt | None = None,
    ) -> tuple[Cache, PromptReading]:
        """Reads the prompts `own` in the model's ids, or by default maps them token by token."""
        has_ids = self.info.input is None
        mapped, length = own or (
            _to_own_ids(params, prompt) if has_ids else prompt,
            prompt_length,
        )
        wanted = {"features": features, "ahead": ahead}
        if own is None and longest is not None:
            wanted["longest"] = longest
        offset = jnp.zeros_like(prompt_length)
        more = {}
        if self.info.start_token is None:
            offset, more = length - prompt_length, {PREFIX: mapped, "prompt_length": length}
            capacity += mapped.shape[1] - prompt.shape[1]
        capacity += max(self._prefix_excess, 0)
        cache, reading = self.model.start(params["model"], mapped, length, capacity, **wanted)
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
        own, fed = _get_own_cache(cache), _to_own_ids(params, tokens)
        if PREFIX in cache.data:
            # A drafter's first call feeds the prompt's end again, in the model's tokenization.
            slot = own.length[:, None] + jnp.arange(tokens.shape[1])
            mapped = jnp.take_along_axis(cache.data[PREFIX], slot, axis=1, mode="clip")
            fed = jnp.where(slot < cache.data["prompt_length"][:, None], mapped, fed)
        if position is not None:
            position = position + cache.data["offset"][:, None]
        output, own = self.model.extend(params["model"], fed, own, position=position, **how)
        return output.replace(logits=_to_target_ids(params, output.logits)), _replace_own_cache(
            cache, own
        )

    def apply_own_prefix(
        self, params: Params, prefix: jax.Array, length: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """Returns the tokens to feed for `prefix` [B, N] of `length` [B], and the cache.

        Tokens before the target's own prefix (previous text) are mapped token by token.
        """
        before = length - len(self.target.info.prefix)
        slot = jnp.arange(prefix.shape[1] + self._prefix_excess)
        place = slot - before[:, None]
        mapped = jnp.take(_to_own_ids(params, prefix), slot, axis=1, mode="clip")
        own = jnp.take(jnp.array(self.prefix, jnp.int32), place, mode="clip")
        tokens = jnp.where(place < 0, mapped, own)
        offset = jnp.full_like(length, self._prefix_excess)
        data = {"offset": offset, PREFIX: tokens, "prompt_length": length + self._prefix_excess}
        return tokens[:, :-1], Cache({**cache.data, **data}, cache.length - self._prefix_excess)

    @property
    def _prefix_excess(self) -> int:
        """Length of its own prefix minus that of the target's."""
        return len(self.prefix) - len(self.target.info.prefix) if self.prefix else 0

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        return _replace_own_cache(cache, self.model.keep(_get_own_cache(cache), path, count))

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        own = self.model.propagate(params["model"], hidden, _get_own_cache(cache), layers)
        return _replace_own_cache(cache, own)


def _to_target_ids(params: Params, logits: jax.Array) -> jax.Array:
    """Maps logits [..., V'] to the target's ids [..., V]; tokens it lacks are masked."""
    return jnp.take(logits, params["places"], axis=-1, mode="fill", fill_value=MASKED)


def _to_own_ids(params: Params, tokens: jax.Array) -> jax.Array:
    return jnp.take(params["fed"], tokens, mode="clip")


def _get_own_cache(cache: Cache) -> Cache:
    """Returns the model's own cache, whose pointer counts its own prompt tokens."""
    return Cache(cache.data["model"], cache.length + cache.data["offset"])


def _replace_own_cache(cache: Cache, own: Cache) -> Cache:
    data = {**cache.data, "model": own.data}
    return Cache(data, own.length - cache.data["offset"])


@dataclasses.dataclass(frozen=True)
class DraftVocabulary(ModelWrapper):
    """A Whisper `model` that computes logits of a draft vocabulary only.

    Its parameters are those of the `model`, the embeddings `rows` [U, D] of the U draft tokens, and
    `places` [V], the row of each token, U for other tokens.
    """

    model: Whisper

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params["model"], tokens)

    def apply_final_norm(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.apply_final_norm(params["model"], hidden)

    def apply_lm_head(self, params: Params, normed: jax.Array) -> jax.Array:
        logits = compute_tied_logits(normed, params["rows"], False)
        return _to_target_ids(params, logits)

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.apply_lm_head(params, self.apply_final_norm(params, hidden))

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
        # A Whisper's calls always return states.
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


def list_draft_tokens(model: LanguageModel, count: int) -> np.ndarray:
    """Lists the first `count` ids of a Whisper, its earliest merges, and special tokens."""
    special = [token for token in range(model.info.eos[0], model.info.vocab_size)]
    return np.unique([*range(min(count, model.info.vocab_size)), *special])


def restrict_vocabulary(
    model: Whisper, params: Params, count: int
) -> tuple[DraftVocabulary, Params]:
    """Restricts a model to `list_draft_tokens`; returns the model and its parameters."""
    tokens = list_draft_tokens(model, count)
    places = np.full(model.info.vocab_size, len(tokens), np.int32)
    places[tokens] = np.arange(len(tokens))
    rows = params["embedding"][tokens]
    return DraftVocabulary(model), {"model": params, "rows": rows, "places": jnp.array(places)}
