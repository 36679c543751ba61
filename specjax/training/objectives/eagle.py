"""Feature drafters: the target's distributions, over several steps on the drafter's own states.

Li et al., "EAGLE-3" (2025), section 3.2, "training-time test" (docs/methods/eagle.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.registry import OBJECTIVES
from specjax.models.base import Params
from specjax.models.eagle import FROZEN, Eagle
from specjax.sampling import argmax
from specjax.training import acceptance
from specjax.training.loss import FROM_TARGET, from_target
from specjax.training.objective import (
    TEACHER,
    TRUNK,
    Frozen,
    FrozenModel,
    Objective,
    TrainingBatch,
    behind,
    masked_sum,
)


@OBJECTIVES.register("eagle", example={"steps": 2})
@dataclasses.dataclass(frozen=True)
class EagleObjective(Objective):
    """Divergence of each step of a draft from the target, step k with weight decay**k.

    Step 0 reads the target's states up to the token before; step k its own last k. The target's
    distribution is that of the ids that can be drafted, total_variation apart, which counts the
    others as rejected.
    """

    needs_teacher: ClassVar[bool] = True
    frozen_parameters: ClassVar[tuple[str, ...]] = FROZEN

    steps: int = fields.integer(3, most=16, help="of a draft that are unrolled in training")
    decay: float = fields.number(0.8, bounds="(0, 1]", help="weight of a step by that before it")
    divergence: str = fields.choice(
        FROM_TARGET, "forward_kl", help="cross_entropy: of the target's likeliest token"
    )

    @property
    def figures(self) -> tuple[str, ...]:
        return acceptance.figures(self.steps)

    def sums(
        self,
        model: Eagle,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        (p, _), steps, masks = self._unrolled(model, params, frozen, batch)
        total = jnp.float32(0)
        for step, (logits, mask) in enumerate(zip(steps, masks, strict=True)):
            total += self.decay**step * masked_sum(from_target(self.divergence, p, logits), mask)
        weight = sum(self.decay**step for step in range(self.steps))
        return total / weight, jnp.sum(masks[0])

    def measured(
        self, model: Eagle, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        (p, best), steps, masks = self._unrolled(model, params, frozen, batch)
        ids = frozen[TRUNK].params["ids"]
        return acceptance.measured(
            (ids[argmax(logits)] == best, acceptance.overlap(p, logits), mask)
            for logits, mask in zip(steps, masks, strict=True)
        )

    def _unrolled(
        self, model: Eagle, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> tuple[tuple[jax.Array, jax.Array], list[jax.Array], list[jax.Array]]:
        """The target's probabilities [B, T, U] of what can be drafted and its likeliest ids [B, T];
        the drafter's logits [B, T, U] and the positions that count [B, T], of every step.
        """
        fixed = {name: frozen[TRUNK].params[name] for name in FROZEN}
        logits, features, cross = target_states(model, frozen[TEACHER], batch)
        probs = jnp.take(jax.nn.softmax(logits, axis=-1), fixed["ids"], axis=-1)
        given = batch["inputs"], features, cross, self.steps
        steps = model.unrolled(fixed | params, *given)
        mask = batch["mask"]
        masks = [mask & behind(mask, step) for step in range(self.steps)]
        return (probs, argmax(logits)), steps, masks


def target_states(
    model: Eagle, teacher: FrozenModel, batch: TrainingBatch
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array, jax.Array] | None]:
    """What a target computes of a batch, as a decode does: logits [B, T, V], states, cross cache.

    The states [B, T, F * E] are of the layers that the drafter reads, side by side.
    """
    target, params, tokens = teacher.model, jax.lax.stop_gradient(teacher.params), batch["inputs"]
    if target.start_token is None:
        prompt = tokens[:, :1], jnp.ones(len(tokens), jnp.int32)
    else:
        prompt = batch["prompt"], batch["prompt_length"]
    cache, _ = target.start(params, *prompt, tokens.shape[1])
    cache = cache.replace(length=jnp.zeros_like(cache.length))
    output, _ = target.extend(params, tokens, cache, features=model.config.features)
    cross = None
    if layer := model.config.cross:
        cross = *cache.data["cross"][layer - 1], cache.data["cross_bias"]
    features = jnp.concatenate(output.features, axis=-1)
    return jax.lax.stop_gradient((output.logits, features, cross))
