"""The points of a sweep: a decode config with some of its fields changed."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.contracts.fields import get_config_fields, make_hashable
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.blocks import Placement
from specjax.experiments.config.validation import check_config, check_field, declared_field
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.strategies import keep_strategies, select_strategies
from specjax.runtime.errors import UserError

MODEL_FIELDS = (*get_config_fields(Placement), "speech")
"""Fields of a decode config that decide which models are loaded, and how."""

MOST_POINTS = 10_000

_STRATEGIES = "strategies"
_LONGEST = 80  # characters of a folder name
_NO_WORDS = re.compile(r"[^A-Za-z0-9._,=+-]+")


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    name: str  # of its folder
    fields: Mapping[str, Any]  # dotted field -> value
    config: ConfigDict
    strategies: Mapping[str, Strategy]

    @property
    def label(self) -> str:
        """The changed fields in words."""
        return ", ".join(f"{_short(field)} {_word(x)}" for field, x in self.fields.items())

    @property
    def models(self) -> str:
        """Key that is equal for points that can share loaded models."""
        values = self.config.to_dict()
        return json.dumps([values[field] for field in MODEL_FIELDS], sort_keys=True)


def points(config: ConfigDict) -> list[Point]:
    """Every combination of the grid's values, grouped by models.

    Raises:
      UserError: when the base or a field or value of the grid cannot be used.
    """
    base = base_config(config)
    grid = flat_grid(config.grid)
    for field, values in grid.items():
        check_values(base, field, values)
    fields = [fields for fields, _ in groups(grid, config.strategies, config.get("apart", False))]
    check_count("config.grid", *fields)
    changes = list_combinations(grid, config.strategies, config.get("apart", False))
    names = folder_names([fields for fields, _ in changes])
    all_points = [
        make_point(name, fields, change_config(base, fields, strategies))
        for name, (fields, strategies) in zip(names, changes, strict=True)
    ]
    order = {point.models: index for index, point in reversed(list(enumerate(all_points)))}
    return sorted(all_points, key=lambda point: order[point.models])


def check_count(field: str, *grids: Mapping[str, Sequence[Any]]) -> None:
    """Refuses grids with too many combinations."""
    count = sum(math.prod(map(len, grid.values())) for grid in grids)
    if count > MOST_POINTS:
        raise UserError(
            f"{field} has {count:,} combinations of its values; it must have at most"
            f" {MOST_POINTS:,}"
        )


def list_combinations(
    grid: Mapping[str, Sequence[Any]], strategies: Sequence[str], apart: bool
) -> list[tuple[dict[str, Any], Sequence[str]]]:
    """Every combination of the grid's values, and the strategies to decode with it.

    `apart` crosses only the fields of one strategy, and decodes no other strategy with them.
    """
    return [
        (dict(zip(own, values, strict=True)), group)
        for own, group in groups(grid, strategies, apart)
        for values in itertools.product(*own.values())
    ]


def groups(
    grid: Mapping[str, Sequence[Any]], strategies: Sequence[str], apart: bool
) -> list[tuple[dict[str, Sequence[Any]], Sequence[str]]]:
    """The fields that are crossed with each other, and the strategies that decode with them."""
    names = dict.fromkeys(_strategy_of(field) for field in grid) if apart else {}
    return [
        (
            {
                field: values
                for field, values in grid.items()
                if not apart or _strategy_of(field) in (None, *group)
            },
            group,
        )
        for group in [(name,) for name in names if name] or [tuple(strategies)]
    ]


def _strategy_of(field: str) -> str | None:
    """The strategy that a field belongs to."""
    first, *rest = field.split(".")
    return rest[0] if first == _STRATEGIES and rest else None


def proposed_grid(base: ConfigDict) -> dict[str, tuple[Any, ...]]:
    """The grid in the `sweep` field of a decode config, crossed within each strategy."""
    return {
        f"{_STRATEGIES}.{name}.{field}": tuple(values)
        for name, fields in base.get("sweep", {}).items()
        for field, values in fields.items()
    }


def base_config(config: ConfigDict) -> ConfigDict:
    """The decode config that every point starts from.

    Raises:
      UserError: when it is of another experiment, or lacks one of its fields.
    """
    base = config.base
    if base.get("experiment") != "decode":
        raise UserError(
            f"config.base.experiment is {base.get('experiment')!r}; it must be 'decode'"
        )
    check_config(base, "config.base")
    return select_strategies(base)


def flat_grid(grid: ConfigDict) -> dict[str, tuple[Any, ...]]:
    """Values by dotted field.

    Raises:
      UserError: when there are none.
    """
    if not grid:
        raise UserError("config.grid is empty; it must give values to at least one field")
    flat: dict[str, tuple[Any, ...]] = {}

    def gather(node: ConfigDict, path: str) -> None:
        for name, value in node.items():
            field = f"{path}.{name}" if path else name
            if isinstance(value, ConfigDict):
                gather(value, field)
            elif isinstance(value, (list, tuple)) and len(value):
                flat[field] = tuple(value)
            else:
                raise UserError(
                    f"config.grid.{field} is {value!r}; it must be a list of at least one value"
                )

    gather(grid, "")
    return flat


def parse_grid(words: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Parses values by field from `field=value,value`; values are JSON or plain words.

    Raises:
      UserError: when there is no field or no value.
    """
    grid = {}
    for word in words:
        field, equals, values = word.partition("=")
        if not (field and equals and values):
            raise UserError(
                f"{word!r} after the base config is not a field; it must be field=value,value"
            )
        grid[field.strip()] = tuple(_parse_value(value.strip()) for value in values.split(","))
    return grid


def _parse_value(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def check_values(base: ConfigDict, field: str, values: Sequence[Any]) -> None:
    """Refuses fields that the base lacks and values of another type than its own.

    A config has only some fields of a strategy; `check_point` checks all of them.
    """
    *path, last = field.split(".")
    node = base
    for part in path:
        node = node.get(part) if isinstance(node, ConfigDict) else None
    in_strategy = path[:1] == [_STRATEGIES]
    if not isinstance(node, ConfigDict) or not (in_strategy or last in node):
        raise UserError(f"config.grid.{field} is not a field of the base config")
    if isinstance(node.get(last), ConfigDict):
        raise UserError(f"config.grid.{field} is a group of fields; it must name one of them")
    if _distinct(values) < len(values):
        raise UserError(f"config.grid.{field} is {list(values)!r}; its values must differ")
    for value in () if in_strategy else values:
        known = declared_field(base, field)
        if known is not None:
            check_field(known, value, f"config.grid.{field}", "the grid")


def _distinct(values: Sequence[Any]) -> int:
    """Number of distinct values; 1 and 1.0 are equal and make the same run."""
    written = len(set(map(repr, values)))
    try:
        return min(written, len(set(map(make_hashable, values))))
    except TypeError:  # groups of fields
        return written


def change_config(
    base: ConfigDict, fields: Mapping[str, Any], strategies: Sequence[str]
) -> ConfigDict:
    """The base with other values; unless empty, only `strategies` and baselines remain.

    Raises:
      UserError: when the base has no such strategy.
    """
    made = base.copy_and_resolve_references()
    made.sweep = ConfigDict()  # finished points of a smaller grid must remain finished
    with made.unlocked(), made.ignore_type():
        for field, value in fields.items():
            *path, last = field.split(".")
            node = made
            for part in path:
                node = node[part]
            node[last] = value
    if strategies:
        made.strategies = keep_strategies(made.strategies, strategies)
    return made


def make_point(name: str, fields: Mapping[str, Any], config: ConfigDict) -> Point:
    """A point of a sweep; refuses an invalid one by name."""
    point = Point(name, fields, config, {})
    try:
        check_config(config)
        return dataclasses.replace(point, strategies=check_decode(config))
    except UserError as error:
        raise UserError(f"point {point.label}: {error}") from None


def folder_names(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Readable folder names of the combinations, distinct without regard to case.

    Names depend as little as possible on other points: a grid may grow between runs.
    """
    plain = [
        _NO_WORDS.sub("_", ",".join(f"{_short(field)}={_word(x)}" for field, x in change.items()))
        for change in changes
    ]
    folded = [name.lower() for name in plain]
    return [
        name
        if folded.count(name.lower()) == 1 and len(name) <= _LONGEST
        else f"{name[:_LONGEST]}-{_digest(change)}"
        for name, change in zip(plain, changes, strict=True)
    ]


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]


def _short(field: str) -> str:
    return field.removeprefix(f"{_STRATEGIES}.")


def _word(value: Any) -> str:
    """A value as part of a name; the last part of a path."""
    if isinstance(value, float):
        return format(value, "g")
    return str(value).rstrip("/").rpartition("/")[2]
