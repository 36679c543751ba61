"""Bad words: sequences of tokens that are not written."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions, ban
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel


@ADJUSTMENTS.register("bad_words_ids", example={"bad_words_ids": ((4,), (3, 2))})
@dataclasses.dataclass(frozen=True)
class BadWords(Adjustment):
    """Sequences of tokens that are not written; an end of the text is none, as in transformers."""

    bad_words_ids: tuple[tuple[int, ...], ...] = fields.listing(
        "a list of lists of token ids",
        lambda word: isinstance(word, tuple) and bool(word) and all(map(fields.is_token, word)),
        help="sequences of tokens that are not written",
    )

    order: ClassVar[int] = 40

    @staticmethod
    def tokens(value: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return tuple(token for word in value for token in word)

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        ends = {(end,) for end in model.info.eos}
        words = tuple(word for word in self.bad_words_ids if word not in ends)
        return dataclasses.replace(self, bad_words_ids=words)

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        for size in sorted(set(map(len, self.bad_words_ids))):
            words = jnp.array([word for word in self.bad_words_ids if len(word) == size])
            begun = places.last(size - 1)[:, :, None] == words[:, :-1]
            banned = jnp.all(begun, axis=-1)
            logits = ban(logits, words[:, -1], banned)
        return logits
