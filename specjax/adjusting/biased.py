"""A bias of sequences of tokens: their last token becomes likelier, or less likely."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment, Positions
from specjax.core.registry import ADJUSTMENTS


def is_bias(pair: Any) -> bool:
    """Whether it is a sequence of tokens with what their last one's logit changes by."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], tuple)):
        return False
    sequence, bias = pair
    number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
    return bool(sequence) and all(map(fields.is_token, sequence)) and number and bias < float("inf")


@ADJUSTMENTS.register("sequence_bias", example={"sequence_bias": (((3,), 1.5), ((4, 2), -2.0))})
@dataclasses.dataclass(frozen=True)
class SequenceBias(Adjustment):
    """Logits of tokens that would complete a sequence change by its bias, of several by the sum."""

    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = fields.listing(
        "a list of pairs of a list of token ids and a number below infinity",
        is_bias,
        help="sequences of tokens, and what the last one's logit gains behind the others",
    )

    order: ClassVar[int] = 4

    @staticmethod
    def tokens(value: tuple[tuple[tuple[int, ...], float], ...]) -> tuple[int, ...]:
        return tuple(token for sequence, _ in value for token in sequence)

    def adjust(self, logits: jax.Array, places: Positions, rows: Any) -> jax.Array:
        biases = dict(self.sequence_bias)
        for size in sorted(set(map(len, biases))):
            sequences = [sequence for sequence in biases if len(sequence) == size]
            bias = jnp.array([biases[sequence] for sequence in sequences], logits.dtype)
            tokens = jnp.array(sequences)
            begun = jnp.all(places.last(size - 1)[:, :, None] == tokens[:, :-1], axis=-1)
            logits = logits.at[..., tokens[:, -1]].add(jnp.where(begun, bias, 0.0))
        return logits
