"""Whether a decode config can be used, as far as it can be said without a model."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import check_fields, model_names
from specjax.experiments.config.placement import check_ways
from specjax.experiments.decode.data import check_chat, check_one_source
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.decode.tables import check_corpus


def check_decode(config: ConfigDict) -> dict[str, Strategy]:
    """The strategies, if every field is one that a decode could use.

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
    return strategies
