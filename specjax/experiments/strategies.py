"""The strategies of a decode config."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting.base import touched
from specjax.errors import UserError
from specjax.experiments.selecting import CHOOSING, methods

BASELINE = "autoregressive"


def common_width(config: ConfigDict, strategies: dict[str, Strategy]) -> int:
    """Tokens that every call of the target feeds in the run: the most that a strategy may need.

    0, as many as each call needs, without `config.invariant`.
    """
    if not config.invariant:
        return 0
    for name, strategy in strategies.items():
        if strategy.calm:
            raise UserError(
                f"config.invariant is True; it must be False with strategies.{name}: CALM runs the"
                " target layer by layer"
            )
    return max(touched(strategy.drafter) for strategy in strategies.values())


def load_strategies(config: ConfigDict, vocab_size: int) -> dict[str, Strategy]:
    """The strategies of the config, the greedy autoregressive baseline first.

    Those that choose among others come last.
    """
    specs = config.strategies
    made = {
        name: from_config(name, spec, vocab_size)
        for name, spec in specs.items()
        if spec.get("drafter") not in CHOOSING
    }
    made |= {
        name: from_config(name, specs[name], vocab_size, methods(name, made))
        for name in specs
        if name not in made
    }
    baseline = made.pop(BASELINE, Strategy())
    if not (baseline.autoregressive and baseline.greedy):
        raise UserError(f"strategies.{BASELINE} must be greedy and draft nothing")
    return {BASELINE: baseline, **made}
