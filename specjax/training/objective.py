"""The interface of training objectives: functions of a batch that sum over its positions.

An objective is a frozen dataclass of its config fields, one file of `training.objectives` each.
`sums` returns the summed loss and the number of positions, so that micro-batches and devices add up
to exactly the loss of the whole batch. An objective also declares whether it needs a teacher, and
what it trains.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.models.base import LanguageModel, Params
from specjax.models.heads import Heads
from specjax.models.on_target import FeatureDrafter

TrainingBatch = Mapping[str, jax.Array]

TEACHER = "teacher"
"""Name of the frozen model whose distributions are learned."""

TRUNK = "trunk"
"""Name of the frozen model below trained heads, or of the frozen part of a model."""


class FrozenModel(struct.PyTreeNode):
    """A frozen model that an objective reads."""

    params: Params
    model: LanguageModel = struct.field(pytree_node=False)


FIXED = "fixed"
"""Name of the parameters of the trained model that a config freezes (`config.model.frozen`)."""

Frozen = Mapping[str, FrozenModel]
"""Frozen models by name."""


Model = TypeVar("Model", contravariant=True)


class Objective(abc.ABC, Generic[Model]):
    """A loss of a `LanguageModel`, or of a `trains` drafter, on a batch."""

    needs_teacher: ClassVar[bool] = False
    """Whether it reads `frozen[TEACHER]`; then it can also learn on the model's own samples."""

    on_target: ClassVar[bool] = False
    """Whether its model is the frozen target itself."""

    trains: ClassVar[type[FeatureDrafter] | None] = None
    """The kind of feature drafter that it trains; None: any other model."""

    def frozen_parameters(self, model: Model) -> tuple[str, ...]:
        """Top-level names of the model's frozen parameters, those of `frozen[TRUNK]`."""
        return ()

    def figures(self, model: Model) -> tuple[str, ...]:
        """Names of the figures of `measure` other than the loss; larger is better."""
        return ()

    def measure(
        self, model: Model, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Sum [] and count [] of every figure on a batch."""
        return {}

    draws: ClassVar[bool] = False
    """Whether its loss is random, with one key for all rows of a step."""

    @property
    def sample_temperature(self) -> float:
        """Temperature at which the model in training draws its own samples."""
        return 1.0

    @property
    def trains_model(self) -> bool:
        """Whether the model's own parameters change; if not, they are `frozen[TRUNK]`."""
        return True

    def heads_on(self, model: Model) -> Heads | None:
        """The parallel heads on a model that it trains; None for none."""
        return None

    @abc.abstractmethod
    def sums(
        self,
        model: Model,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Summed loss [] and number of positions [].

        `params` are the model's; with heads they are `{"trunk": ..., "heads": ...}`, or the heads'
        alone when the model is not trained. `batch` has `labels` and `mask` [B, T] in addition to
        the inputs of `LanguageModel.teach`. `key` turns dropout on, or is the source of randomness
        of an objective that `draws`.
        """


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of values [B, T] where mask [B, T]; masked values must not be NaN."""
    return jnp.sum(jnp.where(mask, values, 0.0))


def shift_right(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t - offset] of values [B, T, ...]; zero, or False, before the beginning."""
    rest = ((0, 0),) * (values.ndim - 2)
    return jnp.pad(values, ((0, 0), (offset, 0), *rest))[:, : values.shape[1]]


def shift_left(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t + offset] of values [B, T, ...]; zero, or False, beyond the end."""
    rest = ((0, 0),) * (values.ndim - 2)
    return jnp.pad(values, ((0, 0), (0, offset), *rest))[:, offset:]
