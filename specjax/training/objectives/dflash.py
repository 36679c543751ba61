"""Parallel feature drafters: the target's distributions at all tokens of blocks of the output.

Chen et al., "DFlash" (2026), equation 4 (docs/methods/dflash.md).
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
from specjax.models.dflash import DFlash
from specjax.training import acceptance
from specjax.training.feature_drafting import FeatureDrafting, Step, run_teacher, whole
from specjax.training.objective import Frozen, TrainingBatch

LEAST_CHANCE = 1e-6
"""Confidence is kept so far from 0 and 1, where its cross-entropy is infinite."""


@OBJECTIVES.register("dflash", example={"anchors": 2})
@dataclasses.dataclass(frozen=True)
class DFlashObjective(FeatureDrafting[DFlash]):
    """Divergence of each token of blocks from the target, token k weighted exp(-(k - 1) / gamma).

    Blocks begin at some tokens of the output, their anchors. In training the anchors are random, by
    step and row; in evaluation they have equal distances. The positions of a step are the blocks.
    """

    trains = DFlash
    draws: ClassVar[bool] = True
    apart: ClassVar[int] = 0
    decayed_by: ClassVar[str] = "gamma"

    anchors: int = fields.integer(8, help="blocks of a row in a step, at most")
    gamma: float = fields.number(
        4.0, bounds="(0, inf)", help="tokens of a block by which the weight falls to 1 / e"
    )

    confidence_weight: float = fields.number(
        1.0, bounds="[0, inf)", help="weight of the cross-entropy of a confidence head"
    )
    base_weight: float = fields.number(
        0.0, bounds="[0, inf)", help="weight of the divergence without the correction"
    )
    calibrate: bool = fields.flag(
        False,
        help="fit temperatures of the confidence head on the held-out texts after training",
    )

    def compute_other_losses(self, step: Step) -> jax.Array | float:
        """The losses of the confidence head, and of the logits before a correction.

        DSpark (arXiv 2607.05147): the label of the head is the probability that the token is
        accepted, the overlap of both distributions after the text's own tokens.
        """
        total: jax.Array | float = 0.0
        if step.base is not None and self.base_weight:
            total += self.base_weight * self.divergence_of(step, step.base)
        if step.confidence is not None and self.confidence_weight:
            label = jax.lax.stop_gradient(acceptance.overlap(step.p, step.logits))
            chance = jnp.clip(step.confidence, LEAST_CHANCE, 1 - LEAST_CHANCE)
            entropy = -label * jnp.log(chance) - (1 - label) * jnp.log1p(-chance)
            total += self.confidence_weight * entropy
        return total

    def weights(self, model: DFlash) -> list[float]:
        return [math.exp(-step / self.gamma) for step in range(model.config.longest)]

    def compute_steps(
        self,
        model: DFlash,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> list[Step]:
        teacher, mask = run_teacher(model, frozen, batch), batch["mask"]
        count = min(self.anchors, mask.shape[1])
        if key is None:
            anchors, real = evenly(mask, count)
        else:
            anchors, real = at_random(mask, count, row_keys(key, batch))
        given = batch["inputs"], teacher.features, teacher.cross, anchors, model.config.block_size
        made = model.compute_block_logits(whole(params, frozen), *given, all_tokens=True)
        corrected = model.config.correction is not None

        def step(number: int) -> Step:
            # The target's distribution of token `number` of a draft is at the token before it.
            at = anchors + number
            inside = jnp.take_along_axis(mask, at, axis=1, mode="fill", fill_value=False)
            p = jnp.take_along_axis(teacher.p, at[..., None], axis=1, mode="clip")
            best = jnp.take_along_axis(teacher.best, at, axis=1, mode="clip")
            labels = jnp.take_along_axis(teacher.labels, at, axis=1, mode="clip")
            base = made.base[:, :, number] if corrected else None
            confidence = None if made.confidence is None else made.confidence[:, :, number]
            logits = made.logits[:, :, number]
            return Step(p, best, labels, logits, real & inside, base, confidence)

        return [step(number) for number in range(made.logits.shape[2])]

    def confidences(
        self, model: DFlash, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Of blocks of held-out texts, each [B, A, K]: the confidence head's estimate that a token
        is accepted, the probability that it is, and which places count.
        """
        steps = self.compute_steps(model, params, frozen, batch, None)
        made = [
            (step.confidence, acceptance.overlap(step.p, step.logits), step.mask) for step in steps
        ]
        confidence, accepted, counted = (
            jnp.stack(each, axis=-1) for each in zip(*made, strict=True)
        )
        return confidence, accepted, counted


def evenly(mask: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Anchors [B, A] at equal distances within mask [B, T], and their validity mask.

    Rows with at most `count` positions use all of them.
    """
    places, number = jnp.sum(mask, axis=1, keepdims=True), jnp.arange(count)
    offset = jnp.where(places > count, number * places // count, number)
    offset = jnp.minimum(offset, jnp.maximum(places - 1, 0))
    return jnp.argmax(mask, axis=1, keepdims=True) + offset, number < places


def at_random(mask: jax.Array, count: int, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Random distinct anchors by the rows' keys [B], independent of padding."""

    def noise(key: jax.Array, place: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, place))

    of_row = jax.vmap(noise, in_axes=(None, 0))
    drawn = jax.vmap(of_row, in_axes=(0, None))(keys, jnp.arange(mask.shape[1]))
    largest, anchors = jax.lax.top_k(jnp.where(mask, drawn, -1.0), count)
    return anchors, largest >= 0


def row_keys(key: jax.Array, batch: TrainingBatch) -> jax.Array:
    """Keys [B] from the rows' own tokens, independent of their position in a batch."""
    place = jnp.arange(1, batch["labels"].shape[1] + 1)
    written = jnp.sum(jnp.where(batch["mask"], batch["labels"] * place, 0), axis=1)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, written)
