"""One training step: a pure function of state and batch."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from specjax.models.base import LanguageModel, Params
from specjax.parallel.fully_sharded import FullySharded
from specjax.training.objective import FIXED, Frozen, Objective, TrainingBatch
from specjax.training.optimizer import Optimizer


class TrainState(struct.PyTreeNode):
    """Everything that a step changes."""

    params: Params
    optimizer: Any
    step: jax.Array  # []


@dataclasses.dataclass(frozen=True)
class Setup:
    """The static settings of a training step: model, objective, optimizer, sharding."""

    model: LanguageModel
    objective: Objective
    optimizer: Optimizer
    accumulate: int = 1  # micro-batches that a batch is cut into
    dropout: bool = False
    seed: int = 0
    dtype: Any = None  # of the arithmetic; None: the model's own
    sharded: FullySharded | None = None  # None: parameters are whole over the mesh's `data` axis

    @property
    def computed(self) -> LanguageModel:
        """The model in the dtype of training.

        Layers cast float32 parameters where they use them, so gradients and the optimizer's state
        stay float32 whatever `dtype` is.
        """
        if self.dtype is None:
            return self.model
        config = dataclasses.replace(self.model.config, dtype=self.dtype)
        return dataclasses.replace(self.model, config=config)

    def parts(self, tree: Params) -> Params:
        """Parameters or gradients, sharded over the devices."""
        return self.sharded.parts(tree, self.model) if self.sharded else tree

    def whole(self, params: Params) -> Params:
        """Parameters gathered for computing."""
        return self.sharded.whole(params, self.model) if self.sharded else params

    def whole_frozen(self, frozen: Frozen) -> Frozen:
        """Frozen models gathered for computing."""
        if self.sharded is None:
            return frozen
        return {
            name: entry.replace(params=self.sharded.whole(entry.params, entry.model))
            for name, entry in frozen.items()
        }

    def start(self, params: Params) -> TrainState:
        """The state before the first step."""
        return TrainState(params, self.optimizer.make().init(params), jnp.int32(0))


@functools.partial(jax.jit, static_argnames="setup", donate_argnames="state")
def train_step(
    setup: Setup, state: TrainState, frozen: Frozen, batch: TrainingBatch
) -> tuple[TrainState, dict[str, jax.Array]]:
    """One optimizer step; returns the new state, and `loss` (nats per position), `gradient` and
    `positions`, how many the loss is of.

    The loss is the mean over all positions of the batch for any number of micro-batches.
    """
    key = jax.random.fold_in(jax.random.key(setup.seed), state.step)
    total, count, gradient = sums(setup, state.params, frozen, batch, key)
    gradient = jax.tree.map(lambda g: g / jnp.maximum(count, 1), gradient)
    updates, optimizer = setup.optimizer.make().update(gradient, state.optimizer, state.params)
    params = setup.parts(optax.apply_updates(state.params, updates))
    report = {"loss": total / jnp.maximum(count, 1), "gradient": optax.global_norm(gradient)}
    report["positions"] = count
    return TrainState(params, optimizer, state.step + 1), report


def sums(
    setup: Setup, params: Params, frozen: Frozen, batch: TrainingBatch, key: jax.Array
) -> tuple[jax.Array, jax.Array, Params]:
    """Summed loss, number of positions, and the gradient of the sum."""

    def of_part(part: TrainingBatch, index: jax.Array | int) -> tuple[jax.Array, jax.Array, Params]:
        own = jax.random.fold_in(key, index) if setup.dropout else None
        own = key if setup.objective.draws else own

        def loss(params: Params) -> tuple[jax.Array, jax.Array]:
            models = whole_models(setup, params, frozen)
            return setup.objective.sums(setup.computed, *models, part, own)

        (total, count), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return total, count, setup.parts(gradient)

    if setup.accumulate == 1:
        return of_part(batch, 0)
    parts = jax.tree.map(lambda x: x.reshape(setup.accumulate, -1, *x.shape[1:]), batch)
    zero = (jnp.float32(0), jnp.int32(0), jax.tree.map(jnp.zeros_like, params))

    def add(carry: Any, item: tuple[TrainingBatch, jax.Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, carry, of_part(*item)), None

    return jax.lax.scan(add, zero, (parts, jnp.arange(setup.accumulate)))[0]


@functools.partial(jax.jit, static_argnames="setup")
def measure_batch(
    setup: Setup, params: Params, frozen: Frozen, batch: TrainingBatch
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """The objective's figures without dropout, as sums and counts."""
    models = whole_models(setup, params, frozen)
    return setup.objective.measure(setup.computed, *models, batch)


@functools.partial(jax.jit, static_argnames="setup")
def evaluate_batch(
    setup: Setup, params: Params, frozen: Frozen, batch: TrainingBatch
) -> tuple[jax.Array, jax.Array]:
    """Summed loss and number of positions without dropout."""
    models = whole_models(setup, params, frozen)
    return setup.objective.sums(setup.computed, *models, batch, None)


def whole_models(setup: Setup, params: Params, frozen: Frozen) -> tuple[Params, Frozen]:
    """The trained model's parameters, fixed ones included, and the frozen models."""
    params, frozen = setup.whole(params), setup.whole_frozen(frozen)
    if FIXED in frozen:
        params = {**frozen[FIXED].params, **params}
    return params, frozen
