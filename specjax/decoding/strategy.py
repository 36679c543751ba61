"""Strategies: a drafter, a reader, a rule and sampling settings under a config name.

Fields and their checks come from the registered dataclasses (`contracts.registry`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.drafter import Drafter
from specjax.contracts.env import Models
from specjax.contracts.fields import ConfigField, Number, get_config_fields
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS, READERS, RULES
from specjax.contracts.rule import Rule
from specjax.decoding.logprobs import OFF
from specjax.decoding.state import Decoder
from specjax.drafting.nothing import Nothing
from specjax.parallel.sharding import Layout
from specjax.runtime.errors import UserError
from specjax.sampling import make_sampling
from specjax.verification.block import BlockVerification
from specjax.verification.invariant import InvariantReader
from specjax.verification.speculative_sampling import SpeculativeSampling
from specjax.verification.whole import WholeReader

RENAMED = {
    "neural_tree": "'neural', with widths, parents or nodes for a tree",
    "eagle_tree": "'eagle', with widths, parents or nodes for a tree",
    "hydra_tree": "'hydra', with widths, parents or nodes for a tree",
    "ngram_tree": "'bigram', with widths or parents for a tree",
    "copy_tree": "'prompt_lookup', with branches for a tree",
    "blockwise": "'medusa', with length for a chain",
}
"""Former names of drafters, and their replacements."""

Settings = tuple[float, ...]
"""The values of `Drawing`, in the order of its fields."""


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Sampling settings: the fields that every strategy has."""

    temperature: float = fields.number(0.0, bounds="[0, inf)", help="0: greedy")
    top_k: int = fields.integer(0, least=0, help="keep only the most probable tokens; 0: all")
    top_p: float = fields.number(1.0, bounds="(0, 1]", help="probability that stays; 1: all")
    min_p: float = fields.number(
        0.0, bounds="[0, 1]", help="share of the largest probability from which tokens stay; 0: all"
    )
    typical_p: float = fields.number(
        1.0, bounds="(0, 1]", help="probability of the most typical tokens that stays; 1: all"
    )
    epsilon_cutoff: float = fields.number(
        0.0, bounds="[0, 1)", help="probability from which tokens stay; 0: all"
    )
    eta_cutoff: float = fields.number(
        0.0, bounds="[0, 1)", help="the same, lower where the entropy is high; 0: all"
    )


DRAWN = get_config_fields(Drawing)
"""Its fields by name."""


def drawing_fields(settings: Settings) -> dict[str, Any]:
    """Sampling settings by the names of their fields."""
    return dict(zip(DRAWN, settings, strict=True))


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How to decode; hashable, `numbers` are the traced thresholds by name."""

    drafter: Drafter = Nothing()
    rule: Rule = SpeculativeSampling()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    numbers: tuple[tuple[str, Number], ...] = ()  # one number, or one for each arm
    # None becomes the drafter's own reader, or the whole target.
    reader: Reader = None  # pyright: ignore[reportAssignmentType]  # replaced in __post_init__
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0

    def __post_init__(self) -> None:
        fields.check(Drawing(**drawing_fields(self.settings)))
        self.rule.check_sampling(self.greedy)
        width = self.drafter.spec.width
        if width > fields.MOST_DRAFTED:
            raise ValueError(
                f"drafts have {width:,} tokens; they must have at most {fields.MOST_DRAFTED:,}"
            )
        self._check_rule()
        if self.reader is None:
            object.__setattr__(self, "reader", self.drafter.reader or WholeReader())
        self.reader.check(width)
        if bool(self.drafter.spec.tree) != self.reader.trees:
            drafts = "trees" if self.drafter.spec.tree else "chains"
            raise ValueError(
                f"reader is {self.reader}; it must be one of {drafts}, as the drafts are"
            )

    def _check_rule(self) -> None:
        """Refuses a rule that does not support the drafter."""
        own = self.drafter.rule_type
        if own and not isinstance(self.rule, own):
            rule, drafter = RULES.get_name(type(self.rule)), DRAFTERS.get_name(type(self.drafter))
            needed = RULES.get_name(own)
            raise ValueError(f"rule is {rule!r}; drafter {drafter!r} needs its own, {needed!r}")
        if self.drafter.spec.tree and not self.rule.trees:
            rule, known = RULES.get_name(type(self.rule)), [n for n in RULES if RULES[n].cls.trees]
            raise ValueError(f"rule is {rule!r}; drafts that are trees need {' or '.join(known)}")
        tree = self.drafter.spec.tree
        if tree and tree.shared and self.rule.apart and not self.greedy:
            rule, drafter = RULES.get_name(type(self.rule)), DRAFTERS.get_name(type(self.drafter))
            raise ValueError(
                f"rule is {rule!r}; it must be 'lossless' with drafter {drafter!r} at a temperature"
                " above 0: nodes of a level share draws"
            )

    @property
    def lossless(self) -> bool:
        """Whether the outputs keep the target's distribution."""
        return self.rule.lossless and self.reader.exact

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def autoregressive(self) -> bool:
        """Whether the target decodes without drafts, with all its layers."""
        return self.drafter.spec.width == 0 and self.reader.exact

    @property
    def target_widths(self) -> tuple[int, ...]:
        """The numbers of drafted tokens for which target calls are compiled."""
        return self.reader.list_widths(self.drafter.spec.width)

    @property
    def settings(self) -> Settings:
        """Settings that a baseline must share."""
        return tuple(getattr(self, name) for name in DRAWN)

    def bind(self, models: Models) -> Strategy:
        """The strategy with what its drafter has from its models, which calls it needs among it."""
        return dataclasses.replace(self, drafter=self.drafter.bind_models(models))

    def decoder(
        self,
        models: Models,
        max_new_tokens: int,
        *,
        layout: Layout | None = None,
        invariant: int = 0,
        logprobs: str = OFF,
    ) -> Decoder:
        """The static side of a decode with these models.

        `invariant`: tokens that every call of the target feeds; 0: as many as needed. `logprobs`:
        kind of the written tokens' log-probabilities (`decoding.logprobs`).

        Raises:
          ValueError: when they do not fit.
        """
        reader = self.reader
        if invariant:
            self._check_invariant(invariant)
            reader = InvariantReader(invariant - 1)
        if logprobs:
            self._check_logprobs(logprobs)
        parts = self.bind(models).drafter, self.rule, max_new_tokens, reader
        return Decoder(models, *parts, layout=layout, room=invariant, logprobs=logprobs)

    def _check_logprobs(self, logprobs: str) -> None:
        """Refuses log-probabilities of tokens that the whole target does not read."""
        refusal = f"logprobs is {logprobs!r}; it must be False"
        if not self.reader.exact:
            raise ValueError(f"{refusal} under CALM, which does not run all layers of the target")
        if self.drafter.can_skip_review:
            drafter = DRAFTERS.get_name(type(self.drafter))
            raise ValueError(
                f"{refusal} with drafter {drafter!r}, which ends texts without the target's"
                " reading unless verify_eos is True"
            )

    def _check_invariant(self, invariant: int) -> None:
        """Refuses an invalid `invariant`: one call must cover a round's writes and all layers."""
        least = self.drafter.spec.touched_slots
        if invariant < least:
            raise ValueError(
                f"invariant is {invariant}; it must be 0 (off) or at least {least}, the tokens that"
                " a round may touch"
            )
        if self.drafter.spec.tree:
            raise ValueError(
                f"invariant is {invariant}; it must be 0 (off) for trees, of which a call reads all"
                " nodes"
            )
        if not self.reader.exact:
            raise ValueError(
                f"invariant is {invariant}; it must be 0 (off) under CALM, which runs layers one by"
                " one"
            )

    def options(self) -> Options:
        """The traced numbers of the strategy."""
        values = dict(self.numbers)
        for part in (self.drafter, self.rule, self.reader):
            values = fields.collect_default_numbers(part) | values
        numbers = {name: jnp.float32(value) for name, value in values.items()}
        return Options(make_sampling(**drawing_fields(self.settings)), numbers)


def autoregressive(**settings: Any) -> Strategy:
    """The target alone, one token per call."""
    return strategy(**settings)


def speculative(length: int = 4, model: str = "drafter", **settings: Any) -> Strategy:
    """A neural drafter of fixed draft length, under a lossless rule by default."""
    return strategy(drafter="neural", length=length, model=model, **settings)


def strategy(**given: Any) -> Strategy:
    """A strategy from its config fields: `strategy(drafter="neural", length=4)`.

    Raises:
      UserError: when a field is unknown, missing, out of range, or does not apply to the drafter.
    """
    return from_config("", given)


Method = Callable[[str, Mapping[str, Any]], Strategy]
"""Builder of the strategy with a given name and config fields."""


def from_config(
    name: str, spec: Mapping[str, Any], more: Mapping[str, Method] | None = None
) -> Strategy:
    """The strategy `name` of a config; `more` are drafters from other packages.

    Without a name the fields are arguments of a call.

    Raises:
      UserError: when a field is unknown, missing, out of range, or does not apply to the drafter.
    """
    where = f"strategies.{name}." if name else ""
    more = dict(more or {})
    try:
        drafter = _check_choice(where, "drafter", spec.get("drafter", "none"), {**DRAFTERS, **more})
        if drafter in more:
            return more[drafter](name, spec)
        return _build(where, drafter, spec)
    except ValueError as error:
        raise UserError(str(error)) from None


def _build(where: str, drafter: str, spec: Mapping[str, Any]) -> Strategy:
    drafter_entry = DRAFTERS[drafter]
    own_rule = drafter_entry.cls.rule_type
    default_rule = RULES.get_name(own_rule) if own_rule else "lossless"
    rule_entry = RULES[_check_choice(where, "rule", spec.get("rule", default_rule), RULES)]
    reader = _check_choice(where, "reader", spec.get("reader", "whole"), READERS)
    parts = drafter_entry.cls, rule_entry.cls, READERS[reader].cls
    known = _known_fields(parts)
    who = f"drafter {drafter!r} with rule {rule_entry.name!r}"
    values = check_values(where, spec, known, who, ("drafter", "rule", "reader"))
    for cls in parts:
        if hasattr(cls, "check_values"):
            _say_where(where, cls.check_values, values)
    made = _say_where(where, _assemble, parts, values)
    return made if own_rule or "rule" in spec else _choose_best_rule(made)


def _choose_best_rule(strategy: Strategy) -> Strategy:
    """The strategy with the lossless rule that accepts the most tokens.

    With sampling that is block verification, which only supports chains.
    """
    spec = strategy.drafter.spec
    if strategy.greedy or spec.tree or not spec.width:
        return strategy
    return dataclasses.replace(strategy, rule=BlockVerification())


def _known_fields(parts: tuple[type, ...]) -> dict[str, ConfigField]:
    """The config fields of a strategy built from these classes."""
    known: dict[str, ConfigField] = {}
    for cls in (*parts, Drawing):
        known |= get_config_fields(cls)
    return known


def check_values(
    where: str,
    spec: Mapping[str, Any],
    known: Mapping[str, ConfigField],
    who: str,
    names: tuple[str, ...] = ("drafter",),
) -> dict[str, Any]:
    """The values of the `known` fields in a config, other than those in `names`.

    Raises:
      UserError: when a field is unknown to `who`, missing, or its value not allowed.
    """
    for field in spec:
        if field not in (*names, *known):
            allowed = ", ".join((*names, *known))
            raise UserError(f"{where}{field} does not apply to {who}; allowed are {allowed}")
    given = {name: value for name, value in spec.items() if name not in names}
    values = {name: known[name].value(f"{where}{name}", value) for name, value in given.items()}
    for name, field in known.items():
        if field.required and name not in values:
            raise UserError(f"{where}{name} is missing; it must be {field.allowed}")
    return values


def _assemble(parts: tuple[type, ...], values: dict[str, Any]) -> Strategy:
    made, numbers = [], {}
    for cls in parts:
        mine = {name: value for name, value in values.items() if name in get_config_fields(cls)}
        part, own = fields.build(cls, mine)
        made.append(part)
        numbers |= own
    drafter, rule, reader = made
    drawn = {name: value for name, value in values.items() if name in DRAWN}
    return Strategy(
        drafter,
        rule,
        numbers=tuple(numbers.items()),
        reader=reader.adapt_to(drafter.spec, drafter.reader),
        **drawn,
    )


def _say_where(where: str, check: Callable[..., Any], *args: Any) -> Any:
    try:
        return check(*args)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{where.rstrip('.')}: {error}" if where else str(error)) from None


def _check_choice(where: str, field: str, value: Any, table: Mapping[str, Any]) -> str:
    if field == "drafter" and isinstance(value, str) and value in RENAMED and value not in table:
        raise UserError(f"{where}{field} is {value!r}; it must be {RENAMED[value]}")
    if not isinstance(value, str) or value not in table:
        raise UserError(f"{where}{field} is {value!r}; it must be one of {', '.join(table)}")
    return value
