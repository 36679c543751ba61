"""Config fields of strategies that choose among other strategies (their arms)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from specjax.contracts import fields
from specjax.contracts.fields import get_config_fields
from specjax.decoding.strategy import Method, Strategy, check_values
from specjax.drafting.adaptive_length import cost_field
from specjax.models.base import LanguageModel, Params
from specjax.runtime.errors import UserError
from specjax.selection import bandit as bandits
from specjax.selection import policy as policies
from specjax.selection import strategies as together
from specjax.selection import switching
from specjax.selection.arms import Arms
from specjax.selection.choosing import (
    DYNAMIC,
    FIXED,
    GREEDY,
    MODES,
    ONLINE,
    POLICY,
    RANDOM,
    ByChance,
    ByPolicy,
    ByRule,
    Chooser,
    Given,
)
from specjax.selection.policy import embedding_source
from specjax.selection.selected import SelectedArms

_OF_POLICY, _OF_BANDIT = f"{POLICY}:", "bandit:"
"""Prefixes of parameter tree names, followed by a policy's folder or a strategy's name."""

CONTEXT = 16
"""Width of the projected embedding that an online bandit reads."""

SEED = 0
"""Seed of the random projection."""


@dataclasses.dataclass(frozen=True)
class BanditRule:
    """The rule of an online bandit; its tree holds the projection `matrix` and the `state`."""

    bandit: bandits.Bandit

    def __call__(self, tree: Params, embedding: jax.Array, keys: jax.Array) -> jax.Array:
        contexts = bandits.context(tree["matrix"], embedding)
        return jax.vmap(self.bandit.choose, (None, 0, 0))(tree["state"], contexts, keys)

    def start(self, width: int) -> Params:
        """The initial tree for embeddings of `width`."""
        matrix = bandits.projection(jax.random.key(SEED), width, self.bandit.width)
        return {"matrix": matrix, "state": self.bandit.start()}


def arms_named(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the arms of a strategy; empty if it chooses none."""
    if spec.get("drafter") not in CHOOSING:
        return ()
    return tuple(spec.get("arms", ())) or _arms_of(spec.get("policy", ""))


def _arms_of(folder: str) -> tuple[str, ...]:
    return policies.load(folder)[0].arms if folder else ()


_ARMS = fields.names(help="strategies to choose among")
_POLICY = fields.name("", help="folder of a trained policy")


@dataclasses.dataclass(frozen=True)
class SelectedFields:
    """Another strategy of the config, chosen for each text."""

    arms: tuple[str, ...] = _ARMS
    policy: str = _POLICY
    mode: str = fields.choice(MODES, GREEDY, help="how an arm is chosen")
    choices: str = fields.name("", help="an arm, or a JSON file with the arm of every example")
    bandit: str = fields.choice(bandits.KINDS, bandits.UCB, help="optimism of mode 'online'")
    context: int = fields.integer(CONTEXT, least=2, help="input width of mode 'online'")
    spread: float = fields.number(1.0, bounds="[0, inf)", help="optimism of mode 'online'")
    ridge: float = fields.number(1.0, bounds="(0, inf)", help="regularization of mode 'online'")

    LEARNING = ("bandit", "context", "spread", "ridge")

    def strategy(
        self, name: str, strategies: Mapping[str, Strategy], given: Mapping[str, Any]
    ) -> Strategy:
        """Builds the strategy `name` from the other strategies of the config."""
        members = _members(strategies, self.arms, self.policy)
        if self.mode in (GREEDY, DYNAMIC) and not self.policy:
            raise ValueError(f"policy is missing; mode {self.mode!r} needs it")
        if (self.mode == FIXED) != bool(self.choices):
            raise ValueError(
                f"choices is {self.choices!r}; mode {FIXED!r} needs it, and no other has it"
            )
        learning = [field for field in self.LEARNING if field in given]
        if learning and self.mode != ONLINE:
            raise ValueError(f"{learning[0]} does not apply to mode {self.mode!r}")
        return together.make_selected(members, self._chooser(name, len(members)))

    def _chooser(self, name: str, arms: int) -> Chooser:
        if self.mode == RANDOM:
            return ByChance()
        if self.mode == FIXED:
            return Given()
        if self.mode == ONLINE:
            bandit = bandits.Bandit(arms, self.context, self.bandit, self.spread, self.ridge)
            return ByRule(BanditRule(bandit), _OF_BANDIT + name)
        return ByPolicy(policies.logits, self.mode == DYNAMIC, _OF_POLICY + self.policy)


@dataclasses.dataclass(frozen=True)
class SwitchedFields:
    """Another strategy of the config, and another draft length, at every round."""

    costs: tuple[float, ...] = fields.listing(
        "a list of numbers of at least 0", fields.is_number, help="c of each arm's drafter"
    )
    arms: tuple[str, ...] = _ARMS
    policy: str = _POLICY
    bandit: str = fields.choice(switching.KINDS, switching.UCB, help="form of optimism")
    lengths: tuple[int, ...] = fields.listing(
        "a list of integers of at least 1", fields.is_positive, (), help="draft lengths to try"
    )
    verification: str = cost_field("verification")
    overhead: str = cost_field("overhead")
    acceptance: str = cost_field("acceptance")
    trust: float = fields.number(
        switching.DEFAULTS["trust"], bounds="(0, inf)", help="tests that the first guess counts for"
    )
    discount: float = fields.number(
        switching.DEFAULTS["discount"], bounds="[0, 1]", help="weight of a round at the next one"
    )
    explore: float = fields.number(
        switching.DEFAULTS["explore"], bounds="[0, inf)", help="standard deviations of optimism"
    )
    prior: float = fields.number(
        switching.DEFAULTS["prior"], bounds="[0, inf)", help="tests that a policy's word counts for"
    )

    NUMBERS = ("verification", "overhead", "acceptance", "trust", "discount", "explore", "prior")

    def strategy(
        self, name: str, strategies: Mapping[str, Strategy], given: Mapping[str, Any]
    ) -> Strategy:
        """Builds the strategy `name` from the other strategies of the config."""
        members = _members(strategies, self.arms, self.policy)
        more = {field: given[field] for field in self.NUMBERS if field in given}
        if self.policy:
            more |= {"logits": policies.logits, "table": _OF_POLICY + self.policy}
        elif "prior" in given:
            raise ValueError("prior does not apply without policy, whose predictions it weighs")
        return together.make_switched(
            members, self.costs, bandit=self.bandit, lengths=self.lengths, **more
        )


CHOOSING = {"selected": SelectedFields, "switched": SwitchedFields}
"""Fields of drafters that are built from other strategies."""


def methods(strategies: Mapping[str, Strategy]) -> dict[str, Method]:
    """Builders of strategies from other strategies, for `strategy.from_config`."""

    def method(drafter: str, cls: type) -> Method:
        def make(name: str, spec: Mapping[str, Any]) -> Strategy:
            where, known = f"strategies.{name}.", get_config_fields(cls)
            values = check_values(where, spec, known, f"drafter {drafter!r}")
            made, _ = fields.build(cls, values)
            try:
                return made.strategy(name, strategies, values)
            except ValueError as error:
                raise UserError(f"strategies.{name}: {error}") from None

        return make

    return {drafter: method(drafter, cls) for drafter, cls in CHOOSING.items()}


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
    """Policies and initial bandits by the names of their tables.

    Raises:
      UserError: when a policy does not fit its strategy or the target's embeddings.
    """
    trees: dict[str, Params] = {}
    source, width = embedding_source(target)
    for name, strategy in strategies.items():
        drafter = strategy.drafter
        if not isinstance(drafter, Arms):
            continue
        for table in drafter.spec.resources:
            if table.startswith(_OF_POLICY):
                shape, trees[table] = policies.load(table.removeprefix(_OF_POLICY))
                try:
                    policies.check(shape, drafter.names, source, width)
                except UserError as error:
                    raise UserError(f"strategies.{name}: {error}") from None
            chooser = drafter.chooser if isinstance(drafter, SelectedArms) else None
            rule = chooser.rule if isinstance(chooser, ByRule) else None
            if table.startswith(_OF_BANDIT) and isinstance(rule, BanditRule):
                trees[table] = rule.start(width)
    return trees
