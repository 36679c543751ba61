"""Feature drafters: the target's distributions, over several steps on the drafter's own states.

Li et al., "EAGLE-3" (2025), section 3.2, "training-time test" (docs/methods/eagle.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import Params
from specjax.models.eagle import Eagle
from specjax.training.feature_drafting import FeatureDrafting, Step, run_teacher, whole
from specjax.training.objective import Frozen, TrainingBatch, shift_right


@OBJECTIVES.register("eagle", example={"steps": 2})
@dataclasses.dataclass(frozen=True)
class EagleObjective(FeatureDrafting[Eagle]):
    """Divergence of each step of a draft from the target, step k with weight decay**k.

    Step 0 reads the target's states up to the previous token; step k its own last k states. The
    positions of a step are those that it predicts.
    """

    trains = Eagle
    decayed_by: ClassVar[str] = "decay"

    steps: int = fields.integer(3, most=16, help="steps of a draft that are unrolled in training")
    decay: float = fields.number(0.8, bounds="(0, 1]", help="weight of a step by that before it")

    def weights(self, model: Eagle) -> list[float]:
        return [self.decay**step for step in range(self.steps)]

    def compute_steps(
        self,
        model: Eagle,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> list[Step]:
        teacher, mask = run_teacher(model, frozen, batch), batch["mask"]
        given = batch["inputs"], teacher.features, teacher.cross, self.steps
        logits = model.unroll_draft(whole(params, frozen), *given)
        return [
            Step(teacher.p, teacher.best, teacher.labels, one, mask & shift_right(mask, step))
            for step, one in enumerate(logits)
        ]
