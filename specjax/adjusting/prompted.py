"""Tokens of the prompt become likelier."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.context import Context
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel


@dataclasses.dataclass(frozen=True)
class OfPrompt(Adjustment):
    """What looks at the prompt, of which one that is heard has no tokens."""

    heard: bool = dataclasses.field(default=False, kw_only=True)

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        return dataclasses.replace(self, heard=model.info.frames is not None)

    def prompt(self, context: Context) -> tuple[jax.Array, jax.Array]:
        """The tokens [B, S] of prompts, and how many [B] each has."""
        if self.heard or context.encoder_tokens.shape[1]:
            return context.encoder_tokens, context.encoder_length * (not self.heard)
        return context.tokens, context.begin


@ADJUSTMENTS.register("encoder_repetition_penalty", example={"encoder_repetition_penalty": 1.5})
@dataclasses.dataclass(frozen=True)
class PromptReward(OfPrompt):
    """Logits of the prompt's tokens are multiplied by it, negative ones divided."""

    encoder_repetition_penalty: str = fields.number(
        bounds="(0, inf)",
        traced="encoder_repetition_penalty",
        help="multiplies logits of the prompt's tokens",
    )

    order: ClassVar[int] = 7
    off: ClassVar[float] = 1.0

    def of_rows(self, context: Context, vocabulary: int) -> jax.Array:
        """Whether [B, V] a token is in the prompt."""
        tokens, length = self.prompt(context)
        return present(tokens, length, vocabulary)

    def adjust(self, logits: jax.Array, places: Positions, rows: jax.Array) -> jax.Array:
        factor = places.context.options.numbers[self.encoder_repetition_penalty]
        said = jnp.where(logits < 0, logits / factor, logits * factor)
        return jnp.where(rows[:, None], said, logits)


def present(tokens: jax.Array, length: jax.Array, vocabulary: int) -> jax.Array:
    """Which tokens [B, V] are among the first `length` [B] of rows [B, N]."""
    slot = jnp.arange(tokens.shape[1])
    tokens = jnp.where(slot < length[:, None], tokens, vocabulary)
    rows = jnp.arange(len(tokens))[:, None]
    return jnp.zeros((len(tokens), vocabulary), bool).at[rows, tokens].set(True, mode="drop")
