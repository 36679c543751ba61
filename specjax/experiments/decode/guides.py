"""What strategies are told from outside while they are measured: given arms, lessons learned."""

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
from specjax.selection.selected import Selected

Lesson = dict[str, np.ndarray]
"""What a guide learns from a batch, as arrays that can be kept."""


class OnlineGuide(Protocol):
    """Of one strategy, over all batches and repeats of a measurement."""

    def told(self, repeat: int, batch: Batch) -> dict[str, Any]:
        """Arguments of `Generator.run` beside batch and keys."""
        ...

    def lesson(self, generation: Generation, seconds: float) -> Lesson:
        """What there is to learn from a batch."""
        ...

    def learn(self, repeat: int, batch: Batch, lesson: Lesson) -> None:
        """Takes it in."""


class NoGuide:
    """For strategies that need nothing."""

    def told(self, repeat: int, batch: Batch) -> dict[str, Any]:
        return {}

    def lesson(self, generation: Generation, seconds: float) -> Lesson:
        return {}

    def learn(self, repeat: int, batch: Batch, lesson: Lesson) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Fixed(NoGuide):
    """The arm of every example is given."""

    arms: np.ndarray  # [N] int32

    def told(self, repeat: int, batch: Batch) -> dict[str, Any]:
        return {"rows": {ARMS: self.arms[np.minimum(batch.index, len(self.arms) - 1)]}}


@dataclasses.dataclass
class Online(NoGuide):
    """A bandit that learns from tokens per second: how many times those of its first text, less 1.

    An arm that was never tried is expected to be as fast as that text, give or take the bandit's
    spread. Every repeat starts anew: each is the run of somebody who knows nothing at first.
    """

    table: str
    start: Params
    states: dict[int, Params] = dataclasses.field(default_factory=dict)
    unit: float = 0.0

    def told(self, repeat: int, batch: Batch) -> dict[str, Any]:
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
    """The tree after texts [B] with their embeddings [B, D], of those that count."""

    def one(
        state: bandit.BanditState, row: tuple[jax.Array, ...]
    ) -> tuple[bandit.BanditState, None]:
        context, *rest = row
        return bandit.update(state, context, *rest), None

    contexts = bandit.context(tree["matrix"], embedding)
    rows = contexts, arm, reward.astype(jnp.float32), counts.astype(jnp.float32)
    state, _ = jax.lax.scan(one, tree["state"], rows)
    return {**tree, "state": state}


def make_guide(
    name: str, spec: ConfigDict, strategy: Strategy, trees: dict[str, Params], examples: int
) -> OnlineGuide:
    """The guide of the strategy that `config.strategies.<name>` spells.

    Raises:
      UserError: when given arms do not fit.
    """
    drafter = strategy.drafter
    if isinstance(drafter, Arms) and ARMS in drafter.rows:
        where = f"strategies.{name}.choices"
        return Fixed(read_arms(where, spec.choices, drafter.names, examples))
    if isinstance(drafter, Selected) and isinstance(drafter.chooser, ByRule):
        return Online(drafter.chooser.table, trees[drafter.chooser.table])
    return NoGuide()


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
