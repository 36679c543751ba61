"""A pure train step and the loop around it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from tqdm import tqdm

from specjax.errors import UserError
from specjax.models.base import Params
from specjax.models.t5 import T5
from specjax.training.loss import cross_entropy

CHECK_EVERY = 50
"""Steps between looks at the loss; each waits for the device."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to train; hashable."""

    steps: int
    learning_rate: float  # peak, relative to each tensor's root mean square
    warmup: int = 100
    clip: float = 1.0  # of the gradient's global norm
    smoothing: float = 0.0
    seed: int = 0

    def optimizer(self) -> optax.GradientTransformation:
        """Adam with linear warm-up and decay, each tensor's step relative to its own scale.

        T5 starts its tensors at scales that differ a hundredfold (queries 0.01, embeddings 1), so
        one absolute rate is too large for some and too small for others.
        """
        schedule = optax.schedules.join_schedules(
            [
                optax.linear_schedule(0.0, self.learning_rate, self.warmup),
                optax.linear_schedule(self.learning_rate, 0.0, max(self.steps - self.warmup, 1)),
            ],
            [self.warmup],
        )
        return optax.chain(
            optax.clip_by_global_norm(self.clip),
            optax.scale_by_adam(b1=0.9, b2=0.98),
            optax.scale_by_param_block_rms(),
            optax.scale_by_learning_rate(schedule),
        )


@struct.dataclass
class TrainState:
    """Everything that a step changes."""

    params: Params
    optimizer: Any
    step: jax.Array  # []


@functools.partial(jax.jit, static_argnames=("model", "recipe"), donate_argnames="state")
def train_step(
    model: T5, recipe: Recipe, state: TrainState, batch: dict[str, jax.Array]
) -> tuple[TrainState, jax.Array]:
    """One optimiser step; returns the new state and the loss (nats per token)."""
    key = jax.random.fold_in(jax.random.key(recipe.seed), state.step)

    def loss(params: Params) -> jax.Array:
        logits = model.module.apply(
            {"params": params},
            batch["source"],
            batch["source_length"],
            batch["inputs"],
            model.config.dropout == 0.0,
            rngs={"dropout": key},
        )
        return cross_entropy(logits, batch["labels"], batch["mask"], recipe.smoothing)

    value, gradient = jax.value_and_grad(loss)(state.params)
    updates, optimizer = recipe.optimizer().update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(params, optimizer, state.step + 1), value


def train(
    model: T5,
    recipe: Recipe,
    batches: Iterable[dict[str, np.ndarray]],
    *,
    name: str,
    params: Params | None = None,
) -> Params:
    """Trains `params` (consumed), or a fresh model; shows progress under `name`.

    Raises:
      UserError: when the loss is no longer a number.
    """
    if params is None:
        params = model.init(jax.random.key(recipe.seed))
    state = TrainState(params, recipe.optimizer().init(params), jnp.int32(0))
    stream = iter(batches)
    with tqdm(total=recipe.steps, desc=f"train {name}", unit="step") as bar:
        for step in range(1, recipe.steps + 1):
            state, loss = train_step(model, recipe, state, next(stream))
            bar.update()
            if step % CHECK_EVERY == 0 or step == recipe.steps:
                value = float(loss)
                if not np.isfinite(value):
                    raise UserError(
                        f"training {name} diverged at step {step} (loss {value}); "
                        "lower its learning_rate"
                    )
                bar.set_postfix(loss=f"{value:.3f}")
    return state.params
