"""The arms of a choice: strategies of a config, their sizes, and their models' outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
from ml_collections import ConfigDict

from specjax.decoding.strategy import DRAWN, Strategy, from_config
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.models.base import LanguageModel
from specjax.models.shapes import get_parameter_shapes
from specjax.pair import TARGET, Pair
from specjax.runtime.errors import UserError
from specjax.selection.data import ALONE
from specjax.training.surgery import take_layers_shape


@dataclasses.dataclass(frozen=True)
class Writer:
    """A model that generates outputs by itself."""

    name: str  # of its file
    model: LanguageModel
    weights: str  # which of the config's models has its parameters
    temperature: float = 0.0


@dataclasses.dataclass(frozen=True)
class StrategyArm:
    """One of the strategies to choose from."""

    strategy: Strategy
    parameters: int  # parameters used per drafted token; the target's without drafts
    writer: Writer | None  # None: the drafter cannot generate by itself


def load_arms(config: ConfigDict, pair: Pair) -> dict[str, StrategyArm]:
    """The arms by name, in the order of `config.strategies`.

    Raises:
      UserError: when a strategy cannot be used or be an arm.
    """
    models = {name: entry.model for name, entry in pair.members.items()}
    arms = {
        name: _arm(name, from_config(name, spec), models)
        for name, spec in config.strategies.items()
    }
    if len(arms) < 2 or ALONE in arms:
        raise UserError(
            f"config.strategies has {', '.join(arms) or 'nothing'}; it must have at least two"
            f" arms, none of them called {ALONE!r}"
        )
    if len({arm.strategy.settings for arm in arms.values()}) > 1:
        raise UserError(
            f"config.strategies differ in {', '.join(DRAWN)}; arms must share them, so that they"
            " differ in speed only"
        )
    return arms


def list_writers(arms: Mapping[str, StrategyArm], target: LanguageModel) -> list[Writer]:
    """The target, whose greedy outputs are the reference, and every other writer once."""
    others = [arm.writer for arm in arms.values() if arm.writer]
    return list(dict.fromkeys([Writer(TARGET, target, TARGET), *others]))


def parameters_of(model: LanguageModel) -> int:
    """Number of parameters of a model."""
    shapes = get_parameter_shapes(model)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _arm(name: str, strategy: Strategy, models: Mapping[str, LanguageModel]) -> StrategyArm:
    drafter = strategy.drafter
    if drafter.spec.resources:
        raise UserError(
            f"strategies.{name} reads {', '.join(drafter.spec.resources)}; arms must be drafters"
            " that need models only, or nothing"
        )
    for model in drafter.spec.models:
        if model not in models:
            raise UserError(
                f"strategies.{name} names the model {model!r}; the config has {', '.join(models)}"
            )
    if strategy.autoregressive:
        # A greedy output would be the target's own; a sample shows how much its outputs vary.
        writer = Writer("target_sample", models[TARGET], TARGET, temperature=1.0)
        return StrategyArm(strategy, parameters_of(models[TARGET]), writer)
    if not isinstance(drafter, Neural | EarlyExit):
        return StrategyArm(
            strategy, sum(parameters_of(models[m]) for m in drafter.spec.models), None
        )
    model, name = models[drafter.model], drafter.model
    if isinstance(drafter, EarlyExit):
        model, name = take_layers_shape(model, range(drafter.exit)), f"{name}_exit_{drafter.exit}"
    return StrategyArm(strategy, parameters_of(model), Writer(name, model, drafter.model))
