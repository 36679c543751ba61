"""Validates the fields of a config against the schema of its experiment."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.checks import check_value
from specjax.contracts.fields import ConfigField, get_config_fields
from specjax.experiments.config.schema import SCHEMAS
from specjax.runtime.errors import UserError


def check_config(config: ConfigDict, where: str = "config") -> None:
    """Refuses a config with missing or unknown fields, or with invalid values.

    Raises:
      UserError: naming the field (a path that begins with `where`), the value and what is allowed.
    """
    known = schema_fields(config, where)
    mine = {name: config[name] for name in config if name != "experiment"}
    _check_group(known, mine, where, f"{where}.experiment {config.experiment!r}", False)


def schema_fields(config: ConfigDict, where: str = "config") -> dict[str, ConfigField]:
    """The schema of a config's experiment.

    Raises:
      UserError: when there is no such experiment.
    """
    experiment = config.get("experiment")
    if not isinstance(experiment, str) or experiment not in SCHEMAS:
        raise UserError(
            f"{where}.experiment is {experiment!r}; it must be one of {', '.join(SCHEMAS)}"
        )
    return get_config_fields(SCHEMAS[experiment])


def declared_field(config: ConfigDict, path: str) -> ConfigField | None:
    """The schema's declaration of the field at a dotted path; None if it has none.

    A config inside of another one, as the base of a sweep, has a schema of its own.
    """
    field, node = None, config
    for name in path.split("."):
        if isinstance(node, ConfigDict) and node.get("experiment") in SCHEMAS:
            known = schema_fields(node)
        else:
            known = field.inner if field else {}
        field = known.get(name)
        node = node.get(name) if isinstance(node, ConfigDict) else None
    return field


def _check_group(
    known: Mapping[str, ConfigField],
    group: Mapping[str, Any] | ConfigDict,
    where: str,
    needs: str,
    partial: bool,
) -> None:
    for name in group:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(known)}"
            raise UserError(f"{where}.{name} is no field of {needs}; {hint}")
    for name, field in known.items():
        if name in group:
            check_field(field, group[name], f"{where}.{name}", needs)
        elif not partial:
            default = f", {field.stand_in!r} by default" if field.kind is not dict else ""
            raise UserError(f"{where}.{name} is missing; {needs} needs it{default}")


def check_field(field: ConfigField, value: Any, path: str, needs: str) -> None:
    """Refuses an invalid value of a field of `needs` (in words); its default is always valid.

    Raises:
      UserError: naming the field (a dotted path), the value and what is allowed.
    """
    if field.kind is not dict:
        if type(value) is not type(field.default) or value != field.default:
            check_value(field, path, value)
        return
    if not isinstance(value, ConfigDict):
        raise UserError(f"{path} is {value!r}; it must be {field.allowed}")
    if field.of:
        _check_group(field.inner, value, path, needs, field.partial)
    if field.members:
        for name in value:
            check_field(field.members, value[name], f"{path}.{name}", needs)
