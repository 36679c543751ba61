"""What training minimizes: functions of a batch that sum over its positions.

An objective is a frozen dataclass of the numbers and words that a config may say of it, one file of
`training.objectives` each. `sums` returns the summed loss and the number of positions, so that
micro-batches and devices add up to exactly the loss of the whole batch. What a training run must
know beside that, an objective says of itself: whether it needs a teacher, what it trains.
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
"""Name of the frozen model below heads that are trained alone, or of what else stays of a model."""


class FrozenModel(struct.PyTreeNode):
    """A model that an objective reads and nobody changes."""

    params: Params
    model: LanguageModel = struct.field(pytree_node=False)


FIXED = "fixed"
"""Name of the parameters of the trained model that a config freezes (`config.model.frozen`)."""

Frozen = Mapping[str, FrozenModel]
"""Such models by name."""


Model = TypeVar("Model", contravariant=True)


class Objective(abc.ABC, Generic[Model]):
    """A loss of a model on a batch: a `LanguageModel`, or of `trains` where that is not None."""

    needs_teacher: ClassVar[bool] = False
    """Whether it reads `frozen[TEACHER]`; then it can also learn on the model's own samples."""

    on_target: ClassVar[bool] = False
    """Whether its model is the target itself, which stays as it is."""

    trains: ClassVar[type[FeatureDrafter] | None] = None
    """What kind of feature drafter it trains, and no other model; None: any other model."""

    def frozen_parameters(self, model: Model) -> tuple[str, ...]:
        """Top names of the model's parameters that stay as they are: those of `frozen[TRUNK]`."""
        return ()

    def figures(self, model: Model) -> tuple[str, ...]:
        """What `measured` measures beside the loss; larger is better."""
        return ()

    def measured(
        self, model: Model, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Sum [] and count [] of every figure on a batch."""
        return {}

    draws: ClassVar[bool] = False
    """Whether its loss is drawn, by a key that is the step's own and the same for all its rows."""

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
        alone when the model is not trained. `batch` has `labels` and `mask` [B, T] beside what
        `LanguageModel.teach` reads; `key` turns dropout on, or is what an objective that `draws`
        draws by in training.
        """


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of values [B, T] where mask [B, T]; what is masked may be anything but NaN."""
    return jnp.sum(jnp.where(mask, values, 0.0))


def shift_right(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t - offset] of values [B, T, ...]; zero, or False, before the beginning."""
    rest = ((0, 0),) * (values.ndim - 2)
    return jnp.pad(values, ((0, 0), (offset, 0), *rest))[:, : values.shape[1]]


def shift_left(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t + offset] of values [B, T]; zero, or False, beyond the end."""
    return jnp.pad(values, ((0, 0), (0, offset)))[:, offset:]
