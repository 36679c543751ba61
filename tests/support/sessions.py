"""Plans and sessions of decode configs, made as jobs make them."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from specjax.experiments.config.fields import checkpoint_dtype
from specjax.experiments.config.footprint import ModelPlan, abstract_params
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.planning import Plan, show_plan
from specjax.experiments.decode.session import Session, open_session
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.pairs import load_pair
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel
from specjax.pair import TARGET, Pair


def make_plan(config: ConfigDict) -> Plan:
    """The plan of a config's checkpoints."""
    return Plan.from_config(config, check_decode(config))


def model_plans(config: ConfigDict) -> dict[str, ModelPlan]:
    """What each model of a config takes; prints its plan."""
    return show_plan(make_plan(config))


def plan_of_models(config: ConfigDict, **models: LanguageModel) -> Plan:
    """The plan of a config on these models instead of its checkpoints."""
    dtype = checkpoint_dtype(config)
    loaded = {
        name: LoadedModel(model, abstract_params(model, dtype), name=name)
        for name, model in models.items()
    }
    return Plan(config, load_strategies(config), Pair(loaded.pop(TARGET), loaded))


def make_session(config: ConfigDict, folder: Path, pair: Pair | None = None) -> Session:
    """The session of a config on a loaded pair, or on its own."""
    return open_session(config, load_strategies(config), pair or load_pair(config), folder)
