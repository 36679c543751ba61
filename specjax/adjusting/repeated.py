"""N-grams that are written once: their last token is banned where it would write one again.

Paulus et al., "A Deep Reinforced Model for Abstractive Summarization" (2018), section 2.5.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.adjusting.prompted import OfPrompt
from specjax.core import fields
from specjax.core.adjustment import UNKNOWN, Adjustment, Positions, ban
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel


def followers(text: jax.Array, length: jax.Array, last: jax.Array) -> jax.Array:
    """Where [B, T, N] tokens of a text stand behind the `last` tokens [B, T, n - 1].

    Of texts [B, 1 or T, N] the first `length` [B, 1 or T] tokens count.
    """
    size, before = text.shape[2], last.shape[2]
    place = jnp.arange(size)
    found = (place >= before) & (place < length[..., None])
    found &= jnp.all(last != UNKNOWN, axis=2)[..., None]
    for back in range(1, before + 1):
        shifted = jnp.pad(text, ((0, 0), (0, 0), (back, 0)), constant_values=UNKNOWN)
        found &= shifted[..., :size] == last[..., -back, None]
    return found


@ADJUSTMENTS.register("no_repeat_ngram_size", example={"no_repeat_ngram_size": 2})
@dataclasses.dataclass(frozen=True)
class NoRepeatedNgrams(Adjustment):
    """No n-gram of the text is written again."""

    no_repeat_ngram_size: int = fields.integer(help="size of n-grams that are written once")

    order: ClassVar[int] = 20
    off: ClassVar[int] = 0

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        before, context = self.no_repeat_ngram_size - 1, places.context
        last, row = places.last(before), context.tokens[:, None]
        logits = ban(logits, row, followers(row, context.length[:, None], last))
        # Those that end on the path: some begin in the row.
        tail = places.tail(before)
        return ban(logits, tail, followers(tail, before + places.depth, last))


@ADJUSTMENTS.register("encoder_no_repeat_ngram_size", example={"encoder_no_repeat_ngram_size": 2})
@dataclasses.dataclass(frozen=True)
class NoNgramsOfPrompt(OfPrompt):
    """No n-gram of the prompt is written."""

    encoder_no_repeat_ngram_size: int = fields.integer(
        help="size of n-grams of the prompt that are not written"
    )

    order: ClassVar[int] = 30
    off: ClassVar[int] = 0

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        if model.info.source_vocab is not None:
            raise ValueError(
                f"encoder_no_repeat_ngram_size is {self.encoder_no_repeat_ngram_size}; of a target"
                " whose prompts have a vocabulary of their own it must be 0"
            )
        return self

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        prompt, length = self.prompt(places.context)
        last = places.last(self.encoder_no_repeat_ngram_size - 1)
        prompt = prompt[:, None]
        return ban(logits, prompt, followers(prompt, length[:, None], last))
