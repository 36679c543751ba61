"""A growing push to end a text: its ends become likelier from some length on."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.registry import ADJUSTMENTS
from specjax.models.base import LanguageModel

MOST = 1e30
"""A power is no larger, so that its product with a logit is finite."""


def is_decay(value: Any) -> bool:
    """Whether it is a length and a factor."""
    if len(value) != 2 or not fields.is_token(value[0]):
        return False
    return fields.is_number(value[1]) and value[1] > 0


@ADJUSTMENTS.register(
    "exponential_decay_length_penalty", example={"exponential_decay_length_penalty": (1, 1.5)}
)
@dataclasses.dataclass(frozen=True)
class DecayingLength(Adjustment):
    """Behind so many new tokens ends grow likelier, by a power of a factor for each token more."""

    exponential_decay_length_penalty: tuple[int, float] = fields.whole(
        "a pair of an integer of at least 0 and a positive number",
        is_decay,
        help="new tokens from which ends of a text grow likelier, and the factor of each",
    )
    eos: tuple[int, ...] = ()

    order: ClassVar[int] = 84
    off: ClassVar[None] = None

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        return dataclasses.replace(self, eos=model.info.eos)

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        start, factor = self.exponential_decay_length_penalty
        more = places.length - places.context.begin[:, None] - start
        power = jnp.minimum(jnp.float32(factor) ** jnp.maximum(more, 0), MOST)
        ends = jnp.array(self.eos, jnp.int32)
        scores = logits[..., ends]
        # An end that cannot be written stays so: the penalty is a multiple of its logit's size.
        size = jnp.where(jnp.isfinite(scores), jnp.abs(scores), 0.0)
        return logits.at[..., ends].add(size * (power - 1.0)[..., None])
