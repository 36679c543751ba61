"""Suppressed tokens: never written, or not as the first one."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.adjusting.forced import ForcedFirst
from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel


def without(logits: jax.Array, tokens: tuple[int, ...]) -> jax.Array:
    """Logits [..., V] without these tokens."""
    return logits.at[..., jnp.array(tokens, jnp.int32)].set(-jnp.inf, mode="drop")


@ADJUSTMENTS.register("suppress_tokens", example={"suppress_tokens": (2,)})
@dataclasses.dataclass(frozen=True)
class Suppressed(Adjustment):
    """Tokens that are never written."""

    suppress_tokens: tuple[int, ...] = fields.tokens(help="tokens that are never written")

    order: ClassVar[int] = 90

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        return without(logits, self.suppress_tokens)


@ADJUSTMENTS.register("begin_suppress_tokens", example={"begin_suppress_tokens": (2, 1)})
@dataclasses.dataclass(frozen=True)
class SuppressedFirst(Adjustment):
    """Tokens that are not written first; behind a forced first token they are not second."""

    begin_suppress_tokens: tuple[int, ...] = fields.tokens(help="tokens that are not written first")
    forced: bool = False  # a first token is

    order: ClassVar[int] = 100

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        forced = any(isinstance(other, ForcedFirst) for other in others)
        return dataclasses.replace(self, forced=forced)

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        begin = places.context.begin
        first = begin + (self.forced & (begin == 1))
        here = (places.length == first[:, None])[..., None]
        return jnp.where(here, without(logits, self.begin_suppress_tokens), logits)
