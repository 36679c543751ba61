"""Distillation: a model learns the whole distributions of a teacher."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import LanguageModel, Params
from specjax.training.divergence import DivergenceFields
from specjax.training.loss import DIVERGENCES, cross_entropy
from specjax.training.objective import TEACHER, Frozen, Objective, TrainingBatch, masked_sum


@OBJECTIVES.register("distillation", example={"divergence": "total_variation", "label_weight": 0.3})
@dataclasses.dataclass(frozen=True)
class Distillation(DivergenceFields, Objective[LanguageModel]):
    """Divergence of the model's distribution from the target's at every position.

    Both are taken at `temperature`. Vocabularies padded to different widths are compared on the
    common ids.
    """

    needs_teacher: ClassVar[bool] = True

    divergence: str = fields.choice(
        tuple(DIVERGENCES),
        "forward_kl",
        help="total_variation is one minus the acceptance of speculative sampling",
    )
    temperature: float = fields.number(
        1.0,
        bounds="[0.001, 1000]",
        help="temperature of both distributions, and of samples of the model in training",
    )
    label_weight: float = fields.number(
        0.0, bounds="[0, 1]", help="share of the cross-entropy with the labels"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divergence == "tv_ce" and self.label_weight:
            raise ValueError(
                f"label_weight is {self.label_weight:g}; it must be 0 with divergence 'tv_ce',"
                " which has a cross-entropy with the labels of its own, by ce_weight"
            )

    @property
    def sample_temperature(self) -> float:
        return self.temperature

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        teacher = frozen[TEACHER]
        (ours,) = model.teach(params, batch, key=key)
        (theirs,) = teacher.model.teach(teacher.params, batch)
        width = min(model.info.vocab_size, teacher.model.info.vocab_size)
        p, q = (
            jax.nn.log_softmax(logits[..., :width] / self.temperature, axis=-1)
            for logits in (jax.lax.stop_gradient(theirs), ours)
        )
        more = self.arguments(batch["labels"], batch["mask"])
        loss = DIVERGENCES[self.divergence](p, q, **more)
        if self.label_weight:
            labels = cross_entropy(ours, batch["labels"])
            loss = (1.0 - self.label_weight) * loss + self.label_weight * labels
        return masked_sum(loss, batch["mask"]), jnp.sum(batch["mask"])
