"""The strategies of a decode config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from specjax.decoding.strategy import DRAWN, Settings, Strategy, drawing_fields, from_config
from specjax.experiments.config.choosing import CHOOSING, arms_named, methods
from specjax.runtime.errors import UserError
from specjax.sampling import CUTS

BASELINE = "autoregressive"


def common_width(config: ConfigDict, strategies: Mapping[str, Strategy]) -> int:
    """Tokens that every call of the target feeds in the run: the most that a strategy may need.

    0, as many as each call needs, without `config.invariant`.
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

    Those that choose among others come last.

    Raises:
      UserError: when one cannot be used, or `config.only` names one that is not there.
    """
    specs = select_specs(config)
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


def select_specs(config: ConfigDict) -> ConfigDict:
    """What spells the strategies: all, or those that `config.only` names.

    Raises:
      UserError: when there is no such strategy.
    """
    only = config.get("only", "")
    if not only:
        return config.strategies
    names = [name for name in map(str.strip, only.split(",")) if name != BASELINE]
    return keep_strategies(config.strategies, names, "config.only")


def select_strategies(config: ConfigDict) -> ConfigDict:
    """The config with no strategies but those that `only` names, which is empty then.

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
    """The strategies of these names, their arms, and those that draft nothing as they sample.

    Raises:
      UserError: when there is no strategy of a name that `field` has.
    """
    for name in names:
        if name not in specs:
            raise UserError(
                f"{field} has {name!r}; it must name strategies of the config, {', '.join(specs)}"
            )
    members = {*names, *(arm for name in names for arm in arms_named(specs[name]))}
    wanted = {_sampling(specs[name]) for name in members if name in specs}
    return ConfigDict(
        {
            name: spec
            for name, spec in specs.items()
            if name in members or (_alone(spec) and _sampling(spec) in wanted)
        }
    )


def _alone(spec: ConfigDict) -> bool:
    """Whether the target decodes with all its layers and without drafts."""
    return spec.get("drafter", "none") == "none" and spec.get("reader") != "calm"


def _sampling(spec: ConfigDict) -> Settings:
    return tuple(spec.get(name, field.default) for name, field in DRAWN.items())


def describe_cuts(settings: Settings) -> list[str]:
    """The further cuts of sampling settings (`sampling.CUTS`) that apply, in words."""
    drawn = drawing_fields(settings)
    cuts = {name: drawn[name] for name, (_, off) in CUTS.items() if drawn[name] != off}
    return [f"{name.replace('_', '-')} {bound:g}" for name, bound in cuts.items()]


def check_models(strategies: Mapping[str, Strategy], models: Sequence[str]) -> None:
    """Refuses strategies that ask for models that are not there.

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
