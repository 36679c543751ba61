"""The strategies of a decode config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.decoding.strategy import DRAWN, Settings, Strategy, drawing_fields, from_config
from specjax.drafting.adaptive_length import COST, LOAD, TIMES
from specjax.experiments.config.choosing import CHOOSING, arms_named, methods
from specjax.runtime.errors import UserError
from specjax.sampling import CUTS

BASELINE = "autoregressive"


def common_width(config: ConfigDict, strategies: Mapping[str, Strategy]) -> int:
    """Tokens that every target call feeds with `config.invariant`; otherwise 0.

    It is the most that any strategy needs. 0: each call feeds as many as it needs.
    """
    if not config.invariant:
        return 0
    for name, strategy in strategies.items():
        if strategy.drafter.spec.tree:
            raise UserError(
                f"config.invariant is True; it must be False with strategies.{name}: a call reads"
                " all nodes of a tree"
            )
        if not strategy.reader.exact:
            raise UserError(
                f"config.invariant is True; it must be False with strategies.{name}: CALM runs the"
                " target layer by layer"
            )
    return max(strategy.drafter.spec.touched_slots for strategy in strategies.values())


def load_strategies(config: ConfigDict) -> dict[str, Strategy]:
    """The strategies of the config, the greedy autoregressive baseline first.

    Strategies that choose among others come last.

    Raises:
      UserError: when one is invalid, or `config.only` names an unknown one.
    """
    specs = select_specs(config)
    for name, spec in specs.items():
        _check_costs(name, spec)
    made = {
        name: from_config(name, spec)
        for name, spec in specs.items()
        if spec.get("drafter") not in CHOOSING
    }
    made |= {
        name: from_config(name, specs[name], methods(made)) for name in specs if name not in made
    }
    baseline = made.pop(BASELINE, Strategy())
    if not (baseline.autoregressive and baseline.greedy):
        raise UserError(f"strategies.{BASELINE} must be greedy and draft nothing")
    return {BASELINE: baseline, **made}


def _check_costs(name: str, spec: Mapping[str, Any]) -> None:
    """Refuses a draft length by load whose costs are those of no machine."""
    if spec.get("adapt") == LOAD and not {TIMES, COST} & set(spec):
        raise UserError(
            f"strategies.{name}.adapt is {LOAD!r}; it must come with times, catching_up and"
            " acceptance as specjax.measure_load finds them, or with cost, verification and"
            " overhead"
        )


def select_specs(config: ConfigDict) -> ConfigDict:
    """The configs of all strategies, or of those in `config.only`.

    Raises:
      UserError: when there is no such strategy.
    """
    only = config.get("only", "")
    if not only:
        return config.strategies
    names = [name for name in map(str.strip, only.split(",")) if name != BASELINE]
    return keep_strategies(config.strategies, names, "config.only")


def select_strategies(config: ConfigDict) -> ConfigDict:
    """The config with only the strategies in `only`, which is then empty.

    Raises:
      UserError: when there is no such strategy.
    """
    made = config.copy_and_resolve_references()
    made.strategies = select_specs(config)
    if "only" in made:
        made.only = ""
    return made


def keep_strategies(
    specs: ConfigDict, names: Sequence[str], field: str = "config.strategies"
) -> ConfigDict:
    """The named strategies, their arms, and the baselines with the same sampling.

    Raises:
      UserError: when `field` names an unknown strategy.
    """
    for name in names:
        if name not in specs:
            raise UserError(
                f"{field} has {name!r}; it must name strategies of the config, {', '.join(specs)}"
            )
    members = {*names, *(arm for name in names for arm in arms_named(specs[name]))}
    samplings = {_sampling(specs[name]) for name in members if name in specs}
    return ConfigDict(
        {
            name: spec
            for name, spec in specs.items()
            if name in members or (_alone(spec) and _sampling(spec) in samplings)
        }
    )


def _alone(spec: ConfigDict) -> bool:
    """Whether a strategy is the whole target without drafts."""
    return spec.get("drafter", "none") == "none" and spec.get("reader") != "calm"


def _sampling(spec: ConfigDict) -> Settings:
    return tuple(spec.get(name, field.default) for name, field in DRAWN.items())


def describe_cuts(settings: Settings) -> list[str]:
    """Describes the further cuts of sampling settings (`sampling.CUTS`) that apply."""
    drawn = drawing_fields(settings)
    cuts = {name: drawn[name] for name, (_, off) in CUTS.items() if drawn[name] != off}
    return [f"{name.replace('_', '-')} {bound:g}" for name, bound in cuts.items()]


def check_models(strategies: Mapping[str, Strategy], models: Sequence[str]) -> None:
    """Refuses strategies with unknown models.

    Raises:
      UserError: naming the strategy.
    """
    for name, strategy in strategies.items():
        for model in strategy.drafter.spec.models:
            if model not in models:
                raise UserError(
                    f"strategies.{name} names the model {model!r}; the config has"
                    f" {', '.join(models)}"
                )
        for table in strategy.drafter.spec.resources:
            if table in models:
                raise UserError(
                    f"strategies.{name} reads a table called {table!r}, as a model is called; it"
                    " must have another name"
                )
