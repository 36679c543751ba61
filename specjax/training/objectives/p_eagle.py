"""Feature drafters that draft in parallel: the target's distributions at slots of one causal call.

P-EAGLE (arXiv 2602.01469, docs/methods/p_eagle.md). Slot 0 is trained at every position of the
output, later slots after fewer and fewer of them ("conditional drop").
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import Params
from specjax.models.p_eagle import PEagle
from specjax.training.feature_drafting import FeatureDrafting, Step, run_teacher, whole
from specjax.training.objective import Frozen, TrainingBatch
from specjax.training.objectives.dflash import at_random, evenly, row_keys

ROUNDING = 1e-3
"""Of a share of positions; less than any share that matters."""


@OBJECTIVES.register("p_eagle", example={"slots": 3})
@dataclasses.dataclass(frozen=True)
class PEagleObjective(FeatureDrafting[PEagle]):
    """Divergence of each slot from the target, slot k with weight slot_decay**k.

    Of the output's positions slot k is trained after the share max(kept**k, least_kept), always
    after some of those of slot k - 1. In training they are random, by step and row; in evaluation
    all slots have the same ones, at equal distances.
    """

    trains = PEagle
    draws: ClassVar[bool] = True
    apart: ClassVar[int] = 0
    decayed_by: ClassVar[str] = "slot_decay"

    slots: int = fields.integer(5, least=2, most=16, help="slots of a draft, with the first one")
    kept: float = fields.number(
        0.7, bounds="(0, 1]", help="positions of a slot by those of the slot before it"
    )
    least_kept: float = fields.number(
        0.2, bounds="[0, 1]", help="least share of the output's positions that a slot keeps"
    )
    slot_decay: float = fields.number(
        1.0, bounds="(0, 1]", help="weight of a slot by that before it"
    )

    @property
    def shares(self) -> list[float]:
        """Of the output's positions, by slot."""
        return [max(self.kept**slot, self.least_kept) for slot in range(self.slots)]

    def weights(self, model: PEagle) -> list[float]:
        return [self.slot_decay**slot for slot in range(self.slots)]

    def compute_steps(
        self,
        model: PEagle,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> list[Step]:
        teacher, mask = run_teacher(model, frozen, batch), batch["mask"]
        anchors, real = self.anchors(batch, key)
        given = batch["inputs"], teacher.features, teacher.cross, anchors[1:]
        logits = model.compute_rollouts(whole(params, frozen), *given)
        logits[0] = jnp.take_along_axis(logits[0], anchors[0][..., None], axis=1)

        def step(slot: int) -> Step:
            at = anchors[slot] + slot
            inside = jnp.take_along_axis(mask, at, axis=1, mode="fill", fill_value=False)
            p = jnp.take_along_axis(teacher.p, at[..., None], axis=1, mode="clip")
            best = jnp.take_along_axis(teacher.best, at, axis=1, mode="clip")
            labels = jnp.take_along_axis(teacher.labels, at, axis=1, mode="clip")
            return Step(p, best, labels, logits[slot], real[slot] & inside)

        return [step(slot) for slot in range(self.slots)]

    def anchors(
        self, batch: TrainingBatch, key: jax.Array | None
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Of every slot the positions [B, N] of the tokens that it follows, and which are real.

        Those of a slot are the first ones of the slot before it.
        """
        mask = batch["mask"]
        size, places = mask.shape[1], jnp.sum(mask, axis=1, keepdims=True)
        if key is None:
            at, real = evenly(mask, _share(size, self.shares[-1]))
            return [at] * self.slots, [real] * self.slots
        order, _ = at_random(mask, size, row_keys(key, batch))
        counts = [_share(size, share) for share in self.shares]
        kept = [jnp.ceil(places * share - ROUNDING) for share in self.shares]
        real = [jnp.arange(count) < few for count, few in zip(counts, kept, strict=True)]
        return [order[:, :count] for count in counts], real


def _share(size: int, share: float) -> int:
    """Positions of so many, at least one."""
    return max(math.ceil(size * share - ROUNDING), 1)
