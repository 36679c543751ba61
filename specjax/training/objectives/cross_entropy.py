"""Cross-entropy: fine-tuning, prediction alignment, training with early exits."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import LanguageModel, Params
from specjax.training.loss import cross_entropy
from specjax.training.objective import Frozen, Objective, TrainingBatch, masked_sum

LAST, FIRST_AND_LAST, ALL = "last", "first_and_last", "all"
EQUAL, LINEAR = "equal", "linear"


@OBJECTIVES.register("cross_entropy", example={"exits": FIRST_AND_LAST, "smoothing": 0.1})
@dataclasses.dataclass(frozen=True)
class CrossEntropy(Objective[LanguageModel]):
    """Cross-entropy with the labels, after the last decoder layer or weighted over several.

    Every exit has the shared norm and head. BiLD's early exit trains the first and last layer with
    equal weights, CALM all with weights i / sum.
    """

    smoothing: float = fields.number(
        0.0, bounds="[0, 0.99]", help="share of the uniform distribution in every label"
    )
    exits: str = fields.choice(
        (LAST, FIRST_AND_LAST, ALL), LAST, help="decoder layers after which labels are predicted"
    )
    exit_weights: str = fields.choice(
        (EQUAL, LINEAR),
        EQUAL,
        help="weights of the exits' losses; linear: in the layer's number (CALM)",
    )

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        layers = self.layers(model.info.depth)
        logits = model.teach(params, batch, key=key, exits=layers)
        losses = (
            weight * masked_sum(cross_entropy(one, batch["labels"], self.smoothing), batch["mask"])
            for weight, one in zip(self.weights(layers), logits, strict=True)
        )
        return jnp.asarray(sum(losses)), jnp.sum(batch["mask"])

    def layers(self, depth: int) -> tuple[int, ...] | None:
        """The decoder layers of the exits, counted from 1; None for only the last one."""
        if self.exits == LAST:
            return None
        return (1, depth) if self.exits == FIRST_AND_LAST else tuple(range(1, depth + 1))

    def weights(self, layers: tuple[int, ...] | None) -> tuple[float, ...]:
        """The weights of the exits' losses, summing to one."""
        if layers is None:
            return (1.0,)
        parts = layers if self.exit_weights == LINEAR else (1,) * len(layers)
        return tuple(part / sum(parts) for part in parts)
