"""Whether the config of a stream can be used, as far as it can be said without weights or texts."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.decoding.strategy import Strategy
from specjax.errors import UserError
from specjax.experiments.config.fields import (
    DTYPES,
    check_choices,
    check_groups,
    check_integers,
    check_numbers,
    model_names,
)
from specjax.experiments.config.online import as_decode
from specjax.experiments.config.sources import check_sources
from specjax.experiments.decode.strategies import BASELINE, check_models, load_strategies
from specjax.experiments.online.learner import DRAFTER, optimizer_of
from specjax.experiments.train.objective import objective_of

_LEAST = {
    "batch_size": 1, "max_new_tokens": 1, "max_prompt_tokens": 1, "bucket": 1, "seed": 0,
    "every": 1, "steps": 1, "blocks": 1, "optimizer.warmup": 0,
}  # fmt: skip
_RANGES = {
    "optimizer.learning_rate": (0.0, 1e3),
    "optimizer.clip": (0.0, 1e6),
    "optimizer.weight_decay": (0.0, 1e3),
}


def check(config: ConfigDict) -> dict[str, Strategy]:
    """The strategies, once every field is found to be one that a run could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_integers(config, _LEAST)
    check_numbers(config, _RANGES)
    check_choices(config, {"dtype": tuple(DTYPES)})
    check_sources(config, "sources", "a source of texts")
    if not config.stream or sorted(config.stream) != list(config.sources):
        raise UserError(
            f"config.stream is {tuple(config.stream)!r}; it must name each of config.sources once,"
            f" {', '.join(config.sources) or 'of which there must be one'}"
        )
    check_groups(config, "strategies")
    if not config.strategies:
        raise UserError("config.strategies is empty; it must name at least one strategy")
    decode = as_decode(config)
    strategies = load_strategies(decode)
    if BASELINE not in config.strategies:
        strategies.pop(BASELINE)
    check_models(strategies, tuple(model_names(decode)))
    for name, strategy in strategies.items():
        for table in strategy.drafter.spec.resources:
            raise UserError(
                f"strategies.{name} reads the table {table!r}; a stream is drafted by models alone"
            )
    check_learning(config, strategies)
    return strategies


def check_learning(config: ConfigDict, strategies: dict[str, Strategy]) -> None:
    """Refuses what cannot learn between texts."""
    if config.every % config.batch_size:
        raise UserError(
            f"config.every is {config.every}; it must be a multiple of config.batch_size,"
            f" {config.batch_size}"
        )
    objective_of(config)
    optimizer_of(config, config.optimizer.warmup)  # refuses its words; the stream is not read yet
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
