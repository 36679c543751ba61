"""The repetition penalty: tokens of the text become less likely.

Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation" (2019),
section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.adjusting.prompted import present
from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.context import Context
from specjax.core.registry import ADJUSTMENTS


@ADJUSTMENTS.register("repetition_penalty", example={"repetition_penalty": 1.5})
@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(Adjustment):
    """Logits of tokens in the text are divided by it, negative ones multiplied."""

    repetition_penalty: str = fields.number(
        bounds="(0, inf)", traced="repetition_penalty", help="divides logits of the text's tokens"
    )

    order: ClassVar[int] = 10
    off: ClassVar[float] = 1.0

    def of_rows(self, context: Context, vocabulary: int) -> jax.Array:
        """Whether [B, V] a token is in the committed row."""
        return present(context.tokens, context.length, vocabulary)

    def adjust(self, logits: jax.Array, places: Positions, rows: jax.Array) -> jax.Array:
        penalty = places.context.options.numbers[self.repetition_penalty]

        def penalised(logits: jax.Array) -> jax.Array:
            return jnp.where(logits < 0, logits * penalty, logits / penalty)

        drafted = places.drafted
        again = jnp.take_along_axis(logits, jnp.maximum(drafted, 0), axis=2)
        index = jnp.where(drafted >= 0, drafted, logits.shape[-1])
        row, place = jnp.arange(len(logits))[:, None, None], jnp.arange(logits.shape[1])[:, None]
        # From the logits as they were: a token counts once however often the text has it.
        once = jnp.where(rows[:, None], penalised(logits), logits)
        return once.at[row, place, index].set(penalised(again), mode="drop")
