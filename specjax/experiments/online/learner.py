"""The drafter of a stream that learns: its parameters, its updates, its checkpoints.

Liu et al., "Online Speculative Decoding" (2023) (docs/methods/online.md). An update is a few steps
of training on the texts decoded since the last one. It is a deterministic function of these texts
and of the previous state, so a lost update can be repeated to the same bits.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Prompt
from specjax.data.pipeline import Arrays, pad_batch
from specjax.experiments.config.fields import DTYPES, generation_arguments
from specjax.experiments.online.records import DecodeRecord
from specjax.experiments.train.feature_drafter import check_objective
from specjax.experiments.train.objective import make_frozen, make_objective
from specjax.experiments.train.subject import Subject, make_subject
from specjax.hf.tokenizer import check_same_vocabulary
from specjax.loading import LoadedModel, load
from specjax.models.base import Params
from specjax.runtime.errors import UserError
from specjax.training.objective import Frozen
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, TrainState, train_step

DRAFTER = "drafter"
"""The model that learns, by its name in strategies."""

Text = tuple[Prompt, DecodeRecord]
"""Ids of a prompt, and its decode record."""


@dataclasses.dataclass
class Learner:
    """The drafter's parameters and training state between two updates."""

    subject: Subject
    setup: Setup
    frozen: Frozen
    state: TrainState
    decoded: LoadedModel  # as in decodes, whose dtypes are kept
    steps: int  # steps of an update
    bucket: int
    programs: dict[int, Any] = dataclasses.field(default_factory=dict)  # by width of batches

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        return int(self.state.step) // self.steps

    @property
    def params(self) -> Params:
        """Parameters that draft the next text."""
        params = self.subject.model_params(self.state.params)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), params, self.decoded.params)

    def update(self, texts: Sequence[Text]) -> dict[str, float]:
        """Learns from texts; returns seconds without compiling, and the prior loss (nats)."""
        model = self.setup.model
        batch = make_training_batch(texts, self.bucket, model.info.start_token, model.info.pad)
        width = batch["inputs"].shape[1]
        if width not in self.programs:
            lowered = train_step.lower(self.setup, self.state, self.frozen, batch)
            self.programs[width] = lowered.compile()
        start, losses = time.perf_counter(), []
        for _ in range(self.steps):
            self.state, report = self.programs[width](self.state, self.frozen, batch)
            losses.append(report["loss"])
        loss = float(losses[0])
        jax.block_until_ready(self.state)
        if not np.isfinite(float(losses[-1])):
            raise UserError(
                f"the drafter's loss is {float(losses[-1])} after update {self.updates:,}; lower"
                " config.optimizer.learning_rate"
            )
        return {"seconds": time.perf_counter() - start, "loss": loss}

    def save(self, workdir: Path) -> list[Path]:
        """Saves the current drafter."""
        return self.subject.save(self.state.params, workdir)


def make_training_batch(
    texts: Sequence[Text], bucket: int, start_token: int | None, pad: int
) -> Arrays:
    """A training batch of texts; its mask [B, T] selects the tested positions."""
    rows = [(prompt, record.tokens) for prompt, record in texts]
    batch = pad_batch(rows, bucket, start_token, pad)
    mask = np.zeros_like(batch["mask"])
    for row, (_, record) in enumerate(texts):
        begin = int(np.argmax(batch["mask"][row]))
        mask[row, begin : begin + len(record.tokens)] = record.places
    return {**batch, "mask": mask & batch["mask"]}


def make_learner(
    config: ConfigDict, target: LoadedModel, decoded: LoadedModel, updates: int
) -> Learner:
    """The learner before the first of `updates` updates.

    Raises:
      UserError: when the objective, or the target's vocabulary, does not fit the drafter.
    """
    start = load(config.drafter, jnp.float32, **generation_arguments(config))
    if start.tokenizer is None:
        start = dataclasses.replace(start, tokenizer=target.tokenizer)
    check_same_vocabulary("in training", start, target)
    objective = make_objective(config)
    check_objective(config, objective, start.model)
    if objective.heads_on(start.model) is not None:
        raise UserError(
            f"config.objective.name is {config.objective.name!r}; it must be one that trains the"
            " drafter itself, without heads on it"
        )
    subject = make_subject(objective, start, config.seed)
    setup = Setup(
        start.model,
        objective,
        make_optimizer(config, updates),
        seed=config.seed,
        dtype=None if config.dtype == "float32" else DTYPES[config.dtype],
    )
    frozen = make_frozen(objective, start, target)
    state = setup.start(subject.params)
    return Learner(subject, setup, frozen, state, decoded, config.steps, config.bucket)


def make_optimizer(config: ConfigDict, updates: int) -> Optimizer:
    """The optimizer of a stream with `updates` updates.

    Raises:
      UserError: when the warmup is longer than the stream.
    """
    steps = max(updates * config.steps, 1)
    if config.optimizer.warmup > steps:
        raise UserError(
            f"config.optimizer.warmup is {config.optimizer.warmup:,}; it must be at most {steps:,},"
            " the optimizer's steps in the stream"
        )
    return Optimizer(steps=steps, **config.optimizer.to_dict())
