"""Drafters that read the target's caches: its distributions, over several steps behind each token.

Every token of a text is the pending one of a draft, whose queries see the target's keys and values
before it and whose states are the drafter's own (docs/methods/eagle.md). As in EAGLE-3 (Li et al.
2025, section 3.2) the steps are unrolled; the tokens between are the text's.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.assistant import Assistant
from specjax.models.base import Params
from specjax.training.feature_drafting import FeatureDrafting, Step, run_teacher, whole
from specjax.training.objective import Frozen, TrainingBatch, shift_left


@OBJECTIVES.register("assistant", example={"steps": 2})
@dataclasses.dataclass(frozen=True)
class AssistantObjective(FeatureDrafting[Assistant]):
    """Divergence of each step of a draft from the target, step k with weight decay**k.

    The positions of a step are the drafts, by their pending tokens.
    """

    trains = Assistant
    apart: ClassVar[int] = 0
    decayed_by: ClassVar[str] = "decay"

    steps: int = fields.integer(3, most=16, help="steps of a draft that are unrolled in training")
    decay: float = fields.number(0.8, bounds="(0, 1]", help="weight of a step by that before it")

    def weights(self, model: Assistant) -> list[float]:
        return [self.decay**step for step in range(self.steps)]

    def compute_steps(
        self,
        model: Assistant,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> list[Step]:
        teacher = run_teacher(model, frozen, batch)
        memory = model.select_memory(teacher.caches)
        given = batch["inputs"], teacher.features, memory, teacher.cross, self.steps
        logits = model.unroll_draft(whole(params, frozen), *given)
        # The first token of a text has no state before it.
        drafts = batch["mask"] & (jnp.arange(batch["mask"].shape[1]) > 0)

        def step(number: int, logits: jax.Array) -> Step:
            p, best, labels, mask = (
                shift_left(values, number)
                for values in (teacher.p, teacher.best, teacher.labels, batch["mask"])
            )
            return Step(p, best, labels, logits, drafts & mask)

        return [step(number, one) for number, one in enumerate(logits)]
