"""Renormalization behind all other settings, which matters where log-probabilities are added up."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.registry import ADJUSTMENTS


@ADJUSTMENTS.register("renormalize_logits", example={"renormalize_logits": True})
@dataclasses.dataclass(frozen=True)
class Renormalized(Adjustment):
    """A beam search adds up log-probabilities that other settings left normalized again."""

    renormalize_logits: bool = fields.flag(
        help="scores of a beam search add up what is normalized again behind all other settings"
    )

    order: ClassVar[int] = 120
    off: ClassVar[bool] = False
    scores_only: ClassVar[bool] = True

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        # Where settings leave no token there is nothing to normalize.
        return logits - jnp.where(total > -jnp.inf, total, 0.0)
