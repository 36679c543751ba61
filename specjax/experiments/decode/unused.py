"""What a decode config names and no strategy of it reads."""

from __future__ import annotations

from collections.abc import Mapping

from ml_collections import ConfigDict

from specjax.core.fields import CORPUS, HEADS, RESERVED
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import model_names

COUNTS = ("ngram_table", "ngram_file")
"""Fields that n-grams come from; the first one given is read."""


def unused_fields(config: ConfigDict, strategies: Mapping[str, Strategy]) -> list[str]:
    """The fields that are given and that no strategy reads, drafters as they are named."""
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
    """Prints what is given in vain: with `config.only` that is no mistake."""
    if fields := unused_fields(config, strategies):
        print(f"no strategy reads {', '.join(fields)}")
