"""What objectives of feature drafters share: the target's states, and steps that are measured.

A draft has steps, its tokens in their order. Of each an objective says where on the text drafts
come to it, what the drafter says there, and what the target does (`Step`).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.models.base import Params
from specjax.models.on_target import Cross, FeatureDrafter
from specjax.sampling import argmax
from specjax.training import acceptance
from specjax.training.divergence import DivergenceFields
from specjax.training.loss import from_target
from specjax.training.objective import (
    TEACHER,
    TRUNK,
    Frozen,
    FrozenModel,
    Objective,
    TrainingBatch,
    masked_sum,
)


class Step(struct.PyTreeNode):
    """A token of drafts that begin at N places of each row."""

    p: jax.Array  # [B, N, U] the target's probabilities of the ids that can be drafted
    best: jax.Array  # [B, N] its likeliest ids, of all
    labels: jax.Array  # [B, N] places of the text's tokens among the U ids; U: not one of them
    logits: jax.Array  # [B, N, U] the drafter's
    mask: jax.Array  # [B, N] whether the token is of the output, and of a draft that is

    def measurable(self, ids: jax.Array) -> acceptance.Step:
        """The same as acceptance is measured by; `ids` [U] are those that can be drafted."""
        hits = ids[argmax(self.logits)] == self.best
        return hits, acceptance.overlap(self.p, self.logits), self.mask


Drafter = TypeVar("Drafter", bound=FeatureDrafter, contravariant=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureDrafting(DivergenceFields, Objective[Drafter]):
    """Divergence of each step of a draft from the target, the later ones with less weight.

    The target's distribution is that of the ids that can be drafted; total_variation and the
    acceptance-aware losses count the others as rejected.
    """

    needs_teacher: ClassVar[bool] = True
    apart: ClassVar[int] = 1
    """How far the places of a draft's tokens are apart in the steps; 0: a place is a draft's."""

    def weights(self, model: Drafter) -> list[float]:
        """Of every step."""
        raise NotImplementedError

    def drafted(
        self,
        model: Drafter,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> list[Step]:
        """The steps of drafts on a batch's texts; `key` as of `sums`."""
        raise NotImplementedError

    def frozen_parameters(self, model: Drafter) -> tuple[str, ...]:
        return model.frozen

    def figures(self, model: Drafter) -> tuple[str, ...]:
        return acceptance.figures(len(self.weights(model)))

    def sums(
        self,
        model: Drafter,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        weights = self.weights(model)
        steps = self.drafted(model, params, frozen, batch, key)
        total = jnp.float32(0)
        for weight, step in zip(weights, steps, strict=True):
            more = self.arguments(step.labels, step.mask)
            far = from_target(self.divergence, step.p, step.logits, **more)
            total += weight * masked_sum(far, step.mask)
        return total / sum(weights), jnp.sum(steps[0].mask)

    def measured(
        self, model: Drafter, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        ids = frozen[TRUNK].params["ids"]
        steps = self.drafted(model, params, frozen, batch, None)
        return acceptance.measured((step.measurable(ids) for step in steps), self.apart)


class TeacherOutputs(struct.PyTreeNode):
    """What a target computes of a batch, as a decode does."""

    p: jax.Array  # [B, T, U] probabilities of the ids that can be drafted
    best: jax.Array  # [B, T] likeliest ids, of all
    labels: jax.Array  # [B, T] places of the labels among the U ids; U: not one of them
    features: jax.Array  # [B, T, F * E] states of the layers that the drafter reads
    cross: Cross | None


def run_teacher(model: FeatureDrafter, frozen: Frozen, batch: TrainingBatch) -> TeacherOutputs:
    """What the target says and computes at every token of the text; no gradient goes there."""
    logits, features, cross = target_states(model, frozen[TEACHER], batch)
    ids = frozen[TRUNK].params["ids"]
    probs = jnp.take(jax.nn.softmax(logits, axis=-1), ids, axis=-1)
    places = jnp.full(logits.shape[-1], len(ids)).at[ids].set(jnp.arange(len(ids)))
    labels = jnp.take(places, batch["labels"], mode="clip")
    return TeacherOutputs(probs, argmax(logits), labels, features, cross)


def target_states(
    model: FeatureDrafter, teacher: FrozenModel, batch: TrainingBatch
) -> tuple[jax.Array, jax.Array, Cross | None]:
    """A target's logits [B, T, V], states [B, T, F * E] and cross-attention cache of one layer."""
    target, params, tokens = teacher.model, jax.lax.stop_gradient(teacher.params), batch["inputs"]
    if target.info.start_token is None:
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


def whole(params: Params, frozen: Frozen) -> Params:
    """All parameters of the drafter, those that stay as they are too."""
    return {**frozen[TRUNK].params, **params}
