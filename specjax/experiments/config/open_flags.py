"""Parses flags that add strategies and their fields, drafters, settings, template variables.

`--config.strategies.mine.drafter=neural` makes a strategy called `mine`. The registries, not the
config, give the type of its fields.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.contracts.fields import get_config_fields
from specjax.contracts.registry import DRAFTERS, READERS, RULES
from specjax.decoding.strategy import Drawing
from specjax.experiments.config.choosing import CHOOSING
from specjax.experiments.config.validation import declared_field

_PREFIX = "--config."
_GROUP = "strategies"
NAMES = ("drafter", "reader", "rule")


def parse_flags(config: ConfigDict, argv: Sequence[str]) -> tuple[ConfigDict, list[str]]:
    """The config with the flags' additions to its open groups, and the remaining flags.

    Flags of existing fields remain: the config's own value gives their type.
    """
    made, left = config.copy_and_resolve_references(), []
    given = {argument.partition("=")[0].removeprefix(_PREFIX) for argument in argv}
    for argument in argv:
        path, equals, text = argument.removeprefix(_PREFIX).partition("=")
        settings, _, name = path.rpartition(".")
        known = declared_field(made, settings)
        if argument.startswith(_PREFIX) and equals and name and known is not None and known.open:
            group = operator.attrgetter(settings)(made)
            with group.unlocked():
                plain = known.members is not None and known.members.kind is str
                group[name] = text if plain else _literal(text)
            continue
        place = (
            _find_new_field(made, path, given) if argument.startswith(_PREFIX) and equals else None
        )
        if place is None:
            left.append(argument)
            continue
        group, name, field = place
        with group.unlocked():
            if name not in group:
                group[name] = ConfigDict()
            group[name][field] = _value(field, text)
    return made, left


def _find_new_field(
    config: ConfigDict, path: str, given: set[str]
) -> tuple[ConfigDict, str, str] | None:
    """The place of a dotted path, if it is a strategy's field that the config does not have.

    A strategy is new when some flag sets its drafter or reader; otherwise its name is a typo.
    """
    place = _place(config, path)
    if place is None:
        return None
    group, name, field = place
    strategy = path.rpartition(".")[0]
    if name not in group and not given & {f"{strategy}.drafter", f"{strategy}.reader"}:
        return None
    spec = group.get(name, ConfigDict())
    return place if isinstance(spec, ConfigDict) and field not in spec else None


def _place(config: ConfigDict, path: str) -> tuple[ConfigDict, str, str] | None:
    """The group of strategies, the strategy's name and the field; None for any other path."""
    *parents, group, name, field = ["", *path.split(".")] if path.count(".") >= 2 else [""] * 4
    node: Any = config
    for parent in filter(None, parents):
        node = node.get(parent) if isinstance(node, ConfigDict) else None
    node = node.get(group) if isinstance(node, ConfigDict) else None
    if group != _GROUP or not isinstance(node, ConfigDict) or not (name and field):
        return None
    return node, name, field


def _value(field: str, text: str) -> Any:
    """Parses a flag's text by the type of its field; leaves invalid text to the checks."""
    kind = _kinds().get(field, str)
    if kind is str:
        return text
    if kind is float and text in ("inf", "nan", "-inf"):
        return float(text)
    return _literal(text)


def _literal(text: str) -> Any:
    """The Python literal of a text, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _kinds() -> dict[str, type]:
    """The type of every field that a strategy may have."""
    classes = [entry.cls for known in (DRAFTERS, READERS, RULES) for entry in known.values()]
    kinds: dict[str, type] = dict.fromkeys(NAMES, str)
    for cls in (*classes, *CHOOSING.values(), Drawing):
        kinds |= {name: field.kind for name, field in get_config_fields(cls).items()}
    return kinds
