"""The least length of a text: no token that ends it before."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.adjusting.suppressed import without
from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel


@dataclasses.dataclass(frozen=True)
class _Least(Adjustment):
    """Ends of the text are not written while it is too short."""

    eos: tuple[int, ...] = ()

    off: ClassVar[int] = 0

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        return dataclasses.replace(self, eos=model.info.eos)

    def short(self, places: Positions) -> jax.Array:
        """Whether [B, T] the text before each place is too short to end."""
        raise NotImplementedError

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        return jnp.where(self.short(places)[..., None], without(logits, self.eos), logits)


@ADJUSTMENTS.register("min_length", example={"min_length": 3})
@dataclasses.dataclass(frozen=True)
class LeastLength(_Least):
    """No end before the text has so many tokens, the prompt or the start token among them."""

    min_length: str = fields.integer(
        least=0, traced="min_length", help="least tokens of a text, its prompt or start token too"
    )

    order: ClassVar[int] = 50

    def short(self, places: Positions) -> jax.Array:
        return places.length < places.context.options.numbers[self.min_length]


@ADJUSTMENTS.register("min_new_tokens", example={"min_new_tokens": 2})
@dataclasses.dataclass(frozen=True)
class LeastNew(_Least):
    """No end before so many tokens were written."""

    min_new_tokens: str = fields.integer(
        least=0, traced="min_new_tokens", help="least new tokens; in place of `min_length`"
    )

    order: ClassVar[int] = 60

    def short(self, places: Positions) -> jax.Array:
        context = places.context
        written = places.length - context.begin[:, None]
        return written < context.options.numbers[self.min_new_tokens]
