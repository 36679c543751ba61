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
from specjax.training.loss import forward_kl, total_variation
from specjax.training.objective import (
    TEACHER,
    TRUNK,
    Frozen,
    FrozenModel,
    Objective,
    TrainingBatch,
    masked_sum,
)

TINY = 1e-9
"""Probability of all ids that can be drafted, below which a position teaches nothing."""


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
        ("cross_entropy", "forward_kl", "total_variation"),
        "forward_kl",
        help="cross_entropy: of the target's likeliest token",
    )

    @property
    def figures(self) -> tuple[str, ...]:
        steps = range(1, self.steps + 1)
        return (
            "tokens_0",
            *(f"acceptance_{t}_at_{step}" for t in (0, 1) for step in steps),
        )

    def sums(
        self,
        model: Eagle,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        teacher, steps, masks = self._unrolled(model, params, frozen, batch)
        total = jnp.float32(0)
        for step, (logits, mask) in enumerate(zip(steps, masks, strict=True)):
            total += self.decay**step * masked_sum(self._loss(teacher, logits), mask)
        weight = sum(self.decay**step for step in range(self.steps))
        return total / weight, jnp.sum(masks[0])

    def measured(
        self, model: Eagle, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Acceptance by position of a draft on the text, and greedy tokens per round.

        At temperature 0 and 1; `at_k` is the rate at which token k stands where those before it
        are the text's.
        """
        (p, best), steps, masks = self._unrolled(model, params, frozen, batch)
        ids = frozen[TRUNK].params["ids"]
        made = {}
        stood, tokens = masks[0], jnp.sum(masks[0])
        for step, (logits, mask) in enumerate(zip(steps, masks, strict=True)):
            count = jnp.sum(mask)
            hits = ids[argmax(logits)] == best
            overlap = jnp.sum(jnp.minimum(p, jax.nn.softmax(logits)), axis=-1)
            made[f"acceptance_0_at_{step + 1}"] = masked_sum(hits, mask), count
            made[f"acceptance_1_at_{step + 1}"] = masked_sum(overlap, mask), count
            # Of a draft that began `step` tokens earlier, all before stood.
            stood = (stood if not step else behind(stood, 1)) & hits & mask
            tokens += jnp.sum(stood)
        return {"tokens_0": (tokens, jnp.sum(masks[0])), **made}

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

    def _loss(self, teacher: tuple[jax.Array, jax.Array], logits: jax.Array) -> jax.Array:
        """The divergence [B, T] of logits [B, T, U]."""
        p, _ = teacher
        q = jax.nn.log_softmax(logits, axis=-1)
        mass = jnp.sum(p, axis=-1, keepdims=True)
        if self.divergence == "total_variation":
            # What cannot be drafted is half of a distance that q can do nothing about.
            return total_variation(jnp.log(jnp.maximum(p, TINY)), q) + 0.5 * (1 - mass[..., 0])
        if self.divergence == "cross_entropy":
            p = (p == jnp.max(p, axis=-1, keepdims=True)).astype(p.dtype)
            loss = -jnp.sum(p * q, axis=-1) / jnp.sum(p, axis=-1)
        else:
            p = p / jnp.maximum(mass, TINY)
            loss = forward_kl(jnp.log(jnp.maximum(p, TINY)), q)
        return jnp.where(mass[..., 0] > TINY, loss, 0.0)


def behind(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t - offset] of booleans [B, T]; False before the beginning."""
    return jnp.pad(values, ((0, 0), (offset, 0)))[:, : values.shape[1]]


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
