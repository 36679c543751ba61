"""Fixed arm choices and online bandit updates of a benchmark."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Batch
from specjax.decoding.state import Generation
from specjax.decoding.strategy import Strategy
from specjax.models.base import Params
from specjax.runtime.errors import UserError
from specjax.selection import bandit
from specjax.selection.arms import ARM, Arms
from specjax.selection.choosing import ARMS, ByRule
from specjax.selection.selected import SelectedArms

Lesson = dict[str, np.ndarray]
"""Observations of a batch that a selector learns from, as arrays that can be saved."""


class ArmSelector(Protocol):
    """Run arguments and online updates of one strategy over a measurement."""

    def run_arguments(self, repeat: int, batch: Batch) -> dict[str, Any]:
        """Arguments of `Generator.run` in addition to batch and keys."""
        ...

    def lesson(self, generation: Generation, seconds: float) -> Lesson:
        """The observations of a batch."""
        ...

    def learn(self, repeat: int, batch: Batch, lesson: Lesson) -> None:
        """Updates the selector with the observations of a batch."""


class NoArmSelector:
    """No arm selection, for strategies without arms or with trained policies."""

    def run_arguments(self, repeat: int, batch: Batch) -> dict[str, Any]:
        return {}

    def lesson(self, generation: Generation, seconds: float) -> Lesson:
        return {}

    def learn(self, repeat: int, batch: Batch, lesson: Lesson) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class FixedArms(NoArmSelector):
    """A fixed arm for every example."""

    arms: np.ndarray  # [N] int32

    def run_arguments(self, repeat: int, batch: Batch) -> dict[str, Any]:
        return {"rows": {ARMS: self.arms[np.minimum(batch.index, len(self.arms) - 1)]}}


@dataclasses.dataclass
class OnlineBandit(NoArmSelector):
    """A bandit whose reward is tokens per second relative to its first batch, minus 1.

    An arm that was never tried is expected to be as fast as that batch, within the bandit's spread.
    Every repeat starts again without knowledge.
    """

    table: str
    start: Params
    states: dict[int, Params] = dataclasses.field(default_factory=dict)
    unit: float = 0.0

    def run_arguments(self, repeat: int, batch: Batch) -> dict[str, Any]:
        return {"trees": {self.table: self.states.get(repeat, self.start)}}

    def lesson(self, generation: Generation, seconds: float) -> Lesson:
        return {
            "embedding": np.asarray(generation.memory.embedding),
            "arm": np.asarray(generation.trace.column(ARM))[:, 0],
            "speed": np.asarray(generation.length - generation.begin) / seconds,
        }

    def learn(self, repeat: int, batch: Batch, lesson: Lesson) -> None:
        tree, speed = self.states.get(repeat, self.start), lesson["speed"]
        self.unit = self.unit or float(speed[: batch.rows].mean()) or 1.0
        gain = speed / self.unit - 1.0
        self.states[repeat] = update_bandit(
            tree, lesson["embedding"], lesson["arm"], gain, speed > 0
        )


@jax.jit
def update_bandit(
    tree: Params, embedding: jax.Array, arm: jax.Array, reward: jax.Array, counts: jax.Array
) -> Params:
    """The bandit's tree after texts [B] with embeddings [B, D]; `counts` masks rows."""

    def one(
        state: bandit.BanditState, row: tuple[jax.Array, ...]
    ) -> tuple[bandit.BanditState, None]:
        context, *rest = row
        return bandit.update(state, context, *rest), None

    contexts = bandit.context(tree["matrix"], embedding)
    rows = contexts, arm, reward.astype(jnp.float32), counts.astype(jnp.float32)
    state, _ = jax.lax.scan(one, tree["state"], rows)
    return {**tree, "state": state}


def make_arm_selector(
    name: str, spec: ConfigDict, strategy: Strategy, trees: dict[str, Params], examples: int
) -> ArmSelector:
    """Builds the arm selector of the strategy `config.strategies.<name>`.

    Raises:
      UserError: when given arms do not fit.
    """
    drafter = strategy.drafter
    if isinstance(drafter, Arms) and ARMS in drafter.rows:
        where = f"strategies.{name}.choices"
        return FixedArms(read_arms(where, spec.choices, drafter.names, examples))
    if isinstance(drafter, SelectedArms) and isinstance(drafter.chooser, ByRule):
        return OnlineBandit(drafter.chooser.table, trees[drafter.chooser.table])
    return NoArmSelector()


def read_arms(where: str, choices: str, names: tuple[str, ...], examples: int) -> np.ndarray:
    """The arm of every example [N]: `choices` is an arm, or a JSON file with a list of arms."""
    if choices in names:
        return np.full(examples, names.index(choices), np.int32)
    if not os.path.isfile(choices):
        raise UserError(
            f"{where} is {choices!r}; it must be an arm, {', '.join(names)}, or a JSON file with"
            " the arm of every example"
        )
    try:
        arms = json.loads(Path(choices).read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{where} is {choices!r}, which is not JSON: {error}") from None
    if not isinstance(arms, list) or len(arms) < examples or any(arm not in names for arm in arms):
        raise UserError(
            f"{where} is {choices!r}; it must list an arm, {', '.join(names)}, for each of the"
            f" {examples} examples"
        )
    return np.array([names.index(arm) for arm in arms[:examples]], np.int32)
