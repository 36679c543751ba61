"""The candidates of a search: one strategy of a decode config with other values of its fields."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.decoding.strategy import DRAWN, Strategy, from_config
from specjax.experiments.config.fields import (
    check_fields,
    model_names,
)
from specjax.experiments.config.schema import STATIC
from specjax.experiments.decode.strategies import BASELINE, check_models, load_strategies
from specjax.experiments.recipes.trees import WIDE
from specjax.experiments.sweep.grid import base_config, check_count
from specjax.experiments.tune.trees import check_trees, label, tree_spec, wide_spec
from specjax.runtime.errors import UserError

CANDIDATES: dict[str, tuple[Any, ...]] = {
    "length": tuple(range(1, 11)),
    "confidence": (0.2, 0.4, 0.6, 0.8),
}
"""Default candidates by field of a strategy, for an empty space.

Fields that change outputs are not included; they are searched if the space lists them.
"""

LENGTH = "length"
"""The field whose smaller values are predicted from a decode with the largest one."""

_ALONE = "alone"  # in the decode config: the target alone under the sampling of the candidates


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One setting of the tuned strategy."""

    name: str  # of its strategy in the decode config of the search
    fields: Mapping[str, Any]
    spec: Mapping[str, Any]  # the whole strategy
    strategy: Strategy
    found: bool = False  # a tree that the search added to the chains of the space

    @property
    def label(self) -> str:
        if self.found:
            return label(self.fields["parents"])
        return ", ".join(f"{field} {value}" for field, value in self.fields.items())

    @property
    def others(self) -> str:
        """Key that is equal for candidates that differ only in draft length."""
        return json.dumps({k: v for k, v in self.fields.items() if k != LENGTH}, sort_keys=True)

    @property
    def lossless(self) -> bool:
        return self.strategy.lossless


@dataclasses.dataclass(frozen=True)
class Space:
    """The searched candidates and their base config."""

    strategy: str  # its name in the base config
    spec: Mapping[str, Any]  # its fields in the base config
    candidates: tuple[Candidate, ...]
    decode: ConfigDict  # the base with the candidates, and the target alone, as its strategies
    baseline: str  # which of those is the target alone under the same sampling
    tree_nodes: int = 0  # most nodes of trees that are searched as well; 0: no trees

    @property
    def strategies(self) -> dict[str, Strategy]:
        """All strategies, including the baselines, as in a decode."""
        return load_strategies(self.decode)

    @property
    def alone(self) -> tuple[str, ...]:
        """The strategies without drafts."""
        return tuple(dict.fromkeys((BASELINE, self.baseline)))

    def candidate(self, name: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def with_candidates(self, more: Sequence[Candidate]) -> Space:
        """The space with further candidates."""
        decode = self.decode.copy_and_resolve_references()
        with decode.unlocked():
            decode.strategies.update({candidate.name: candidate.spec for candidate in more})
        return dataclasses.replace(self, candidates=(*self.candidates, *more), decode=decode)

    def with_trees(self, shapes: Mapping[str, Sequence[int]]) -> Space:
        """The space with new trees of these parents by name."""
        known = {candidate.name for candidate in self.candidates}
        more = []
        for name in (name for name in shapes if name not in known):
            fields = {"parents": tuple(shapes[name])}
            spec = tree_spec(self.spec, **fields)
            more.append(Candidate(name, fields, spec, from_config(name, spec), found=True))
        return self.with_candidates(more)

    @property
    def groups(self) -> int:
        """Sizes of the groups within which the prediction selects."""
        if self.judged:
            return len(self.probes)
        return 2 if self.tree_nodes else 1

    @property
    def judged(self) -> bool:
        """Whether quality matters: outputs depend on more than the draft length."""
        searched = set(self.candidates[0].fields)
        return searched != {LENGTH} and not all(candidate.lossless for candidate in self.candidates)

    def first_examples(self, config: ConfigDict) -> int:
        """Examples of the first round; scores of few texts are noisy."""
        least = config.quality_examples if self.judged else 1
        return max(config.first_examples, least)

    @property
    def probes(self) -> dict[str, Candidate]:
        """The candidate of the longest drafts for all that share its other fields."""
        return {candidate.others: candidate for candidate in self._by_length()}

    @property
    def short_probes(self) -> dict[str, Candidate]:
        """The candidate of the shortest drafts for all that share its other fields."""
        return {candidate.others: candidate for candidate in reversed(self._by_length())}

    def _by_length(self) -> list[Candidate]:
        return sorted(self.candidates, key=lambda candidate: candidate.strategy.drafter.spec.width)


def make_space(config: ConfigDict) -> Space:
    """The search space of a tune config.

    Raises:
      UserError: when a field, the base, the strategy or a candidate cannot be used.
    """
    base = base_config(config)
    check_fields(base)
    if base.batching != STATIC:
        raise UserError(
            f"config.base.batching is {base.batching!r}; it must be {STATIC!r}: candidates are"
            " compared by the seconds of the same batches"
        )
    if base.invariant:
        raise UserError(
            "config.base.invariant is True; it must be False: what is then best depends on the"
            " other candidates, whose widest draft all of them pay for"
        )
    strategy = strategy_name(config.strategy, base.strategies)
    spec = base.strategies[strategy].to_dict()
    values = values_of(config.space, spec)
    check_count("config.space", values)
    check_trees(config.tree_nodes, config.objective, spec, tuple(values))
    settings = [
        dict(zip(values, combination, strict=True))
        for combination in itertools.product(*values.values())
    ]
    candidates = tuple(
        Candidate(
            f"candidate_{index}",
            fields,
            {**spec, **fields},
            candidate_strategy(strategy, spec, fields),
        )
        for index, fields in enumerate(settings)
    )
    for candidate in candidates:
        try:
            check_models({strategy: candidate.strategy}, tuple(model_names(base)))
        except UserError as error:
            raise UserError(f"config.space: {error}") from None
    baseline, target_only = baseline_spec(spec)
    decode = base.copy_and_resolve_references()
    decode.strategies = ConfigDict({BASELINE: {"drafter": "none"}, baseline: target_only})
    if config.tree_nodes:
        decode.strategies[WIDE] = ConfigDict(wide_spec(spec))
        candidate_strategy(strategy, wide_spec(spec), {})
    space = Space(strategy, spec, (), decode, baseline, config.tree_nodes)
    return space.with_candidates(candidates)


def strategy_name(requested: str, specs: ConfigDict) -> str:
    """The strategy to tune: the requested one, else the first with a neural drafter.

    First by name (configs sort their fields), with the lossless rule if possible.

    Raises:
      UserError: when there is no such strategy, or it drafts nothing.
    """
    drafting = [name for name, spec in specs.items() if spec.get("drafter", "none") != "none"]
    neural = [name for name in drafting if specs[name].drafter == "neural"]
    neural.sort(key=lambda name: specs[name].get("rule", "lossless") != "lossless")
    chosen = requested or next(iter(neural), "")
    if chosen not in drafting:
        raise UserError(
            f"config.strategy is {requested!r}; it must name a strategy of the base config that"
            f" drafts: {', '.join(drafting) or 'there is none'}"
        )
    return chosen


def values_of(space: ConfigDict, spec: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Values by searched field, from the config or the strategy's built-in ones.

    Raises:
      UserError: when there are none, or one occurs twice.
    """
    if not space:
        built_in = {field: CANDIDATES[field] for field in CANDIDATES if field in spec}
        if not built_in:
            raise UserError(
                "config.space is empty; the strategy has no field with built-in candidates, so it"
                " must list values of at least one field"
            )
        return built_in
    for field, values in space.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise UserError(
                f"config.space.{field} is {values!r}; it must be a list of at least one value"
            )
        if len(set(map(repr, values))) < len(values):
            raise UserError(f"config.space.{field} is {list(values)!r}; its values must differ")
    return {field: tuple(values) for field, values in space.items()}


def candidate_strategy(name: str, spec: Mapping[str, Any], fields: Mapping[str, Any]) -> Strategy:
    """The strategy with other values of its fields.

    Raises:
      UserError: when it has no such field or cannot have the value.
    """
    try:
        return from_config(name, {**spec, **fields})
    except UserError as error:
        raise UserError(f"config.space: {error}") from None


def baseline_spec(spec: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and fields of the strategy without drafts with the sampling of `spec`."""
    sampling = {f: spec[f] for f in DRAWN if f in spec}
    greedy = not sampling.get("temperature")
    return (BASELINE, {"drafter": "none"}) if greedy else (_ALONE, {"drafter": "none", **sampling})


def flags(space: Space, fields: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Flags that set existing fields of the base config, and the missing fields."""
    place = f"--config.strategies.{space.strategy}"
    known = {field: value for field, value in fields.items() if field in space.spec}
    assignments = [f"{place}.{field}={value}" for field, value in known.items()]
    return assignments, {field: value for field, value in fields.items() if field not in space.spec}


def round_sizes(first: int, available: int, contenders: int) -> list[int]:
    """Examples of each round until one of `contenders` is left, doubling every round.

    A round of all examples is the last one.
    """
    sizes: list[int] = []
    while contenders > 1 or not sizes:
        size = min(first * 2 ** len(sizes), available)
        sizes.append(size)
        if size == available:
            break
        contenders //= 2
    return sizes
