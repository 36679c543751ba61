"""Validates a decode config without a model and finds unused fields."""

from __future__ import annotations

from collections.abc import Mapping

from ml_collections import ConfigDict

from specjax.contracts.fields import CORPUS, HEADS, RESERVED
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import check_fields, model_names
from specjax.experiments.config.placement import check_ways
from specjax.experiments.config.schema import FILLED, STATIC
from specjax.experiments.decode.data import check_chat, check_one_source
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.decode.tables import check_corpus
from specjax.runtime.errors import UserError
from specjax.selection.choosing import ByRule
from specjax.selection.selected import SelectedArms


def check_decode(config: ConfigDict) -> dict[str, Strategy]:
    """Validates the config; returns its strategies.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_fields(config)
    check_one_source(config)
    check_chat(config)
    check_ways(config)
    check_corpus(config)
    strategies = load_strategies(config)
    check_models(strategies, tuple(model_names(config)))
    if config.batching == FILLED:
        check_filled(config, strategies)
    return strategies


def check_filled(config: ConfigDict, strategies: Mapping[str, Strategy]) -> None:
    """Refuses what slots that are refilled cannot do.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    must = f"config.batching is {FILLED!r}; it must be {STATIC!r} with"
    if config.profile_rounds:
        raise UserError(f"{must} config.profile_rounds, which profiles a whole batch")
    for name, strategy in strategies.items():
        drafter = strategy.drafter
        if isinstance(drafter, SelectedArms) and isinstance(drafter.chooser, ByRule):
            raise UserError(f"{must} strategies.{name}, which learns from the seconds of batches")


COUNTS = ("ngram_table", "ngram_file")
"""Fields that n-grams come from; the first nonempty one is read."""


def unused_fields(config: ConfigDict, strategies: Mapping[str, Strategy]) -> list[str]:
    """Fields that are set but read by no strategy; drafters by name."""
    specs = [strategy.drafter.spec for strategy in strategies.values()]
    models = {name for spec in specs for name in spec.models}
    tables = {name for spec in specs for name in spec.resources}
    given = [field for field in COUNTS if config[field]]
    unread = given[1:] if tables - set(RESERVED) else given
    unread += [field for field in ("corpus_file", "corpus_split") if CORPUS not in tables]
    unread += [] if HEADS in tables else ["heads"]
    drafters = [name for name in model_names(config) if name not in {"target", *models}]
    named = [name if name == "drafter" else f"drafters.{name}" for name in drafters]
    return [f"config.{field}" for field in (*filter(config.get, unread), *named)]


def note_unused(config: ConfigDict, strategies: Mapping[str, Strategy]) -> None:
    """Prints the unused fields; with `config.only` they are no mistake."""
    if fields := unused_fields(config, strategies):
        print(f"no strategy reads {', '.join(fields)}")
