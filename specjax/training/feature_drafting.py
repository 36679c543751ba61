"""Shared parts of the objectives of feature drafters: target states and draft steps.

The steps of a draft are its tokens in order. For each step an objective gives the positions in the
text, the drafter's distributions and the target's distributions (`Step`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.models.base import Params
from specjax.models.on_target import Cross, FeatureDrafter
from specjax.sampling import argmax
from specjax.training import acceptance
from specjax.training.divergence import DivergenceFields, check_unread
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
from specjax.training.weighting import DECAY, DPACE, WEIGHTINGS, dpace_weights, prefix_weights


class Step(struct.PyTreeNode):
    """One token of drafts that begin at N positions of each row."""

    p: jax.Array  # [B, N, U] the target's probabilities of the ids that can be drafted
    best: jax.Array  # [B, N] its most probable ids, of all
    labels: jax.Array  # [B, N] places of the text's tokens among the U ids; U: not one of them
    logits: jax.Array  # [B, N, U] the drafter's
    mask: jax.Array  # [B, N] whether the token is of the output, and of a draft that is
    base: jax.Array | None = None  # [B, N, U] the logits before a correction
    confidence: jax.Array | None = None  # [B, N] of a correction, that the token is accepted

    def measurable(self, ids: jax.Array) -> acceptance.Step:
        """The step in the form of `acceptance.measure_acceptance`; `ids` [U] can be drafted."""
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
    """Distance between positions of consecutive draft tokens; 0: a position is one draft."""

    decayed_by: ClassVar[str]
    """The field by which the weights of `weights` fall."""

    weighting: str = fields.choice(
        WEIGHTINGS,
        DECAY,
        help="weights of a draft's tokens; decay: fixed, by gamma or decay; prefix: by the chance"
        " that all tokens before are accepted; dpace: of cross_entropy, by D-PACE",
    )
    dpace_alpha: float = fields.number(
        0.5, bounds="[0, 1]", help="for dpace: 0: the drafter's own probabilities, 1: a fixed fall"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting == DPACE and self.divergence != "cross_entropy":
            raise ValueError(
                f"divergence is {self.divergence!r}; it must be 'cross_entropy' with weighting"
                " 'dpace'"
            )
        read = {DECAY: (self.decayed_by,), DPACE: ("dpace_alpha",)}
        check_unread(self, "weighting", read)

    def weights(self, model: Drafter) -> list[float]:
        """Of every step, by `decayed_by`."""
        raise NotImplementedError

    def compute_steps(
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
        return model.frozen_names

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
        steps = self.compute_steps(model, params, frozen, batch, key)
        losses = [self.divergence_of(step, step.logits) for step in steps]
        total = jnp.float32(0)
        for weight, loss, step in zip(
            self._weights_of_places(model, steps, losses), losses, steps, strict=True
        ):
            total += masked_sum(weight * (loss + self.compute_other_losses(step)), step.mask)
        return total, jnp.sum(steps[0].mask)

    def divergence_of(self, step: Step, logits: jax.Array) -> jax.Array:
        """That [B, N] of a step's logits [B, N, U] from the target."""
        words = self.arguments(step.labels, step.mask)
        return from_target(self.divergence, step.p, logits, **words)

    def compute_other_losses(self, step: Step) -> jax.Array | float:
        """Other losses [B, N] of a step."""
        return 0.0

    def _weights_of_places(
        self, model: Drafter, steps: list[Step], losses: list[jax.Array]
    ) -> list[jax.Array] | list[float]:
        """Weight of every step: one number, or one of each place [B, N]."""
        if self.weighting == DECAY:
            weights = self.weights(model)
            return [weight / sum(weights) for weight in weights]
        masks = [step.mask for step in steps]
        if self.weighting == DPACE:
            chances = [jnp.exp(-loss) for loss in losses]  # of the labels
            weights = dpace_weights(chances, masks, self.apart, self.dpace_alpha)
        else:
            accepted = [acceptance.overlap(step.p, step.logits) for step in steps]
            weights = prefix_weights(accepted, masks, self.apart)
        return [weight / len(steps) for weight in weights]

    def measure(
        self, model: Drafter, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        ids = frozen[TRUNK].params["ids"]
        steps = self.compute_steps(model, params, frozen, batch, None)
        return acceptance.measure_acceptance((step.measurable(ids) for step in steps), self.apart)


class TeacherOutputs(struct.PyTreeNode):
    """Outputs of the target for a batch, as in a decode."""

    p: jax.Array  # [B, T, U] probabilities of the ids that can be drafted
    best: jax.Array  # [B, T] most probable ids, of all
    labels: jax.Array  # [B, T] places of the labels among the U ids; U: not one of them
    features: jax.Array  # [B, T, F * E] states of the layers that the drafter reads
    cross: Cross | None
    caches: list[Any]  # of all layers, as the target keeps them


def run_teacher(model: FeatureDrafter, frozen: Frozen, batch: TrainingBatch) -> TeacherOutputs:
    """The target's outputs at every token of the text, without a gradient."""
    logits, features, cross, caches = target_states(model, frozen[TEACHER], batch)
    ids = frozen[TRUNK].params["ids"]
    # A softmax of all ids would be a second array of the logits' size.
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    probs = jnp.exp(jnp.take(logits, ids, axis=-1) - total)
    places = jnp.full(logits.shape[-1], len(ids)).at[ids].set(jnp.arange(len(ids)))
    labels = jnp.take(places, batch["labels"], mode="clip")
    return TeacherOutputs(probs, argmax(logits), labels, features, cross, caches)


def target_states(
    model: FeatureDrafter, teacher: FrozenModel, batch: TrainingBatch
) -> tuple[jax.Array, jax.Array, Cross | None, list[Any]]:
    """A target's logits [B, T, V], states [B, T, F * E], cross-attention cache of one layer, and
    the caches of all of its layers.
    """
    target, params, tokens = teacher.model, jax.lax.stop_gradient(teacher.params), batch["inputs"]
    if target.info.start_token is None:
        prompt = tokens[:, :1], jnp.ones(len(tokens), jnp.int32)
    else:
        prompt = batch["prompt"], batch["prompt_length"]
    cache, _ = target.start(params, *prompt, tokens.shape[1])
    cache = cache.replace(length=jnp.zeros_like(cache.length))
    output, cache = target.extend(params, tokens, cache, features=model.config.features)
    cross = None
    if layer := model.config.cross:
        cross = *cache.data["cross"][layer - 1], cache.data["cross_bias"]
    features = jnp.concatenate(output.features, axis=-1)
    return jax.lax.stop_gradient((output.logits, features, cross, cache.data["own"]))


def whole(params: Params, frozen: Frozen) -> Params:
    """All parameters of the drafter, including frozen ones."""
    return {**frozen[TRUNK].params, **params}
