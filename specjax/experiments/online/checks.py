"""Validates the config of a stream without weights or texts."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.decoding.strategy import Strategy
from specjax.experiments.config.defaults import to_decode_config
from specjax.experiments.config.fields import (
    check_strategies,
    model_names,
)
from specjax.experiments.decode.data import check_sources
from specjax.experiments.decode.strategies import BASELINE, check_models, load_strategies
from specjax.experiments.online.learner import DRAFTER
from specjax.experiments.train.objective import make_objective
from specjax.runtime.errors import UserError


def check(config: ConfigDict) -> dict[str, Strategy]:
    """Validates the config; returns its strategies.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_sources(config, "sources")
    if not config.stream or sorted(config.stream) != list(config.sources):
        raise UserError(
            f"config.stream is {tuple(config.stream)!r}; it must name each of config.sources once,"
            f" {', '.join(config.sources) or 'of which there must be one'}"
        )
    check_strategies(config)
    decode = to_decode_config(config)
    strategies = load_strategies(decode)
    if BASELINE not in config.strategies:
        strategies.pop(BASELINE)
    check_models(strategies, tuple(model_names(decode)))
    for name, strategy in strategies.items():
        for table in strategy.drafter.spec.resources:
            raise UserError(
                f"strategies.{name} reads the table {table!r}; streams allow models only"
            )
    check_learning(config, strategies)
    return strategies


def check_learning(config: ConfigDict, strategies: dict[str, Strategy]) -> None:
    """Refuses a strategy that cannot learn between texts."""
    if config.every % config.batch_size:
        raise UserError(
            f"config.every is {config.every}; it must be a multiple of config.batch_size,"
            f" {config.batch_size}"
        )
    make_objective(config)
    if not config.learns:
        return
    if config.learns not in strategies:
        raise UserError(
            f"config.learns is {config.learns!r}; it must be a strategy of the config,"
            f" {', '.join(strategies)}, or empty"
        )
    if DRAFTER not in strategies[config.learns].drafter.spec.models:
        raise UserError(
            f"config.learns is {config.learns!r}; it must be a strategy that drafts with the model"
            f" {DRAFTER!r}"
        )
