"""Forced tokens: the first one of a decoder's text, and the last one where a row is full."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions, only
from specjax.core.registry import ADJUSTMENTS


@ADJUSTMENTS.register("forced_bos_token_id", example={"forced_bos_token_id": 3})
@dataclasses.dataclass(frozen=True)
class ForcedFirst(Adjustment):
    """The token behind a text of one, as the language behind a decoder's start token."""

    forced_bos_token_id: str = fields.integer(
        least=0, traced="forced_bos_token_id", help="the token behind the decoder's start token"
    )

    order: ClassVar[int] = 70
    off: ClassVar[None] = None

    @staticmethod
    def tokens(value: int) -> tuple[int, ...]:
        return (value,)

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        # One for all rows, or one for each of them.
        token = places.context.options.numbers[self.forced_bos_token_id].reshape(-1, 1, 1)
        return only(logits, jnp.arange(logits.shape[-1]) == token, places.length == 1)


@ADJUSTMENTS.register("forced_eos_token_id", example={"forced_eos_token_id": (1,)})
@dataclasses.dataclass(frozen=True)
class ForcedLast(Adjustment):
    """The token that fills a row, one of these; all of them weigh the same."""

    forced_eos_token_id: tuple[int, ...] = fields.tokens(help="the token at the length limit")

    order: ClassVar[int] = 80

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        chosen = jnp.isin(jnp.arange(logits.shape[-1]), jnp.array(self.forced_eos_token_id))
        return only(logits, chosen, places.length == places.context.limit[:, None] - 1)
