"""Strategies of configs that choose among other strategies, their arms."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax

from specjax.decoding import arms as together
from specjax.decoding.strategy import Method, Strategy
from specjax.drafting.choosing import (
    DYNAMIC,
    FIXED,
    GREEDY,
    ONLINE,
    POLICY,
    RANDOM,
    ByChance,
    ByPolicy,
    ByRule,
    Chooser,
    Given,
)
from specjax.drafting.selected import Arms
from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.selection import bandit as bandits
from specjax.selection import policy as policies
from specjax.selection.features import source_of

_OF_POLICY, _OF_BANDIT = f"{POLICY}:", "bandit:"
"""Beginnings of names of parameter trees: a policy's folder follows, or a strategy's name."""

CONTEXT = 16
"""Width of what an online bandit reads of an embedding."""

SEED = 0
"""Of the random projection to it."""

_LEARNING = ("bandit", "context", "spread", "ridge")
_SELECTED = ("arms", "policy", "mode", "choices", *_LEARNING)
_NUMBERS = ("verification", "overhead", "acceptance", "trust", "discount", "explore", "prior")
_SWITCHED = ("arms", "policy", "bandit", "lengths", *_NUMBERS)

CHOOSING = ("selected", "switched")
"""Drafters that are made of other strategies."""


@dataclasses.dataclass(frozen=True)
class Learned:
    """The rule of an online bandit; its tree holds the projection `matrix` and the `state`."""

    bandit: bandits.Bandit

    def __call__(self, tree: Params, embedding: jax.Array, keys: jax.Array) -> jax.Array:
        contexts = bandits.context(tree["matrix"], embedding)
        return jax.vmap(self.bandit.choose, (None, 0, 0))(tree["state"], contexts, keys)

    def start(self, width: int) -> Params:
        """The tree before any reward, for embeddings of `width`."""
        matrix = bandits.projection(jax.random.key(SEED), width, self.bandit.width)
        return {"matrix": matrix, "state": self.bandit.start()}


def arms_named(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The strategies that the strategy of a config's spec chooses among; none for others."""
    if spec.get("drafter") not in CHOOSING:
        return ()
    return tuple(spec.get("arms", ())) or _arms_of(spec.get("policy", ""))


def _arms_of(folder: str) -> tuple[str, ...]:
    return policies.load(folder)[0].arms if folder else ()


def methods(name: str, strategies: Mapping[str, Strategy]) -> dict[str, Method]:
    """How the strategy called `name` is made of others, for `strategy.from_config`."""
    return {
        "selected": (functools.partial(_selected, name, strategies), (), _SELECTED),
        "switched": (functools.partial(_switched, strategies), ("costs",), _SWITCHED),
    }


def _selected(
    name: str,
    strategies: Mapping[str, Strategy],
    *,
    arms: tuple[str, ...] = (),
    policy: str = "",
    mode: str = GREEDY,
    choices: str = "",
    **learning: Any,
) -> Strategy:
    """`arms.selected` from the fields of a config."""
    members = _members(strategies, arms, policy)
    if mode in (GREEDY, DYNAMIC) and not policy:
        raise ValueError(f"policy is missing; mode {mode!r} needs it")
    if (mode == FIXED) != bool(choices):
        raise ValueError(f"choices is {choices!r}; mode {FIXED!r} needs it, and no other has it")
    if learning and mode != ONLINE:
        raise ValueError(f"{next(iter(learning))} does not apply to mode {mode!r}")
    return together.selected(members, _chooser(name, mode, policy, len(members), **learning))


def _chooser(
    name: str,
    mode: str,
    folder: str,
    arms: int,
    bandit: str = bandits.UCB,
    context: int = CONTEXT,
    spread: float = 1.0,
    ridge: float = 1.0,
) -> Chooser:
    if mode == RANDOM:
        return ByChance()
    if mode == FIXED:
        return Given()
    if mode == ONLINE:
        return ByRule(
            Learned(bandits.Bandit(arms, context, bandit, spread, ridge)), _OF_BANDIT + name
        )
    return ByPolicy(policies.logits, mode == DYNAMIC, _OF_POLICY + folder)


def _switched(
    strategies: Mapping[str, Strategy],
    *,
    costs: tuple[float, ...],
    arms: tuple[str, ...] = (),
    policy: str = "",
    **fields: Any,
) -> Strategy:
    """`arms.switched` from the fields of a config."""
    members = _members(strategies, arms, policy)
    if policy:
        fields |= {"logits": policies.logits, "table": _OF_POLICY + policy}
    elif "prior" in fields:
        raise ValueError("prior does not apply without policy, whose word it weighs")
    return together.switched(members, costs, **fields)


def _members(
    strategies: Mapping[str, Strategy], arms: tuple[str, ...], folder: str
) -> dict[str, Strategy]:
    """The arms by name, in the order of the policy if there is one."""
    known = _arms_of(folder)
    if arms and known and arms != known:
        raise ValueError(
            f"arms is {', '.join(arms)}; the policy chooses among {', '.join(known)}, in this order"
        )
    arms = arms or known
    if len(arms) < 2:
        raise ValueError(f"arms is {arms!r}; without a policy it must name at least two strategies")
    for arm in arms:
        if arm not in strategies:
            raise ValueError(
                f"arm {arm!r} is not a strategy of the config; allowed are {', '.join(strategies)}"
            )
    return {arm: strategies[arm] for arm in arms}


def selection_trees(strategies: Mapping[str, Strategy], target: LanguageModel) -> dict[str, Params]:
    """The policies, and the bandits before any reward, by the names of their tables.

    Raises:
      UserError: when a policy does not fit its strategy or the target's embeddings.
    """
    found: dict[str, Params] = {}
    source, width = source_of(target)
    for name, strategy in strategies.items():
        if not isinstance(strategy.drafter, Arms):
            continue
        for table in strategy.drafter.tables:
            if table.startswith(_OF_POLICY):
                shape, found[table] = policies.load(table.removeprefix(_OF_POLICY))
                try:
                    policies.check(shape, strategy.drafter.names, source, width)
                except UserError as error:
                    raise UserError(f"strategies.{name}: {error}") from None
            if table.startswith(_OF_BANDIT):
                found[table] = strategy.drafter.chooser.rule.start(width)
    return found
