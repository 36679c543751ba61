"""The config that a workdir belongs to: a resumed run must not go on under other settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.errors import UserError
from specjax.writing import write_json

SETTINGS = "settings.json"
"""In the workdir: the config of the run that it holds."""


def write_settings(config: ConfigDict, workdir: Path) -> None:
    """Makes the workdir one of this config."""
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / SETTINGS, settings_of(config))


def settings_of(config: ConfigDict) -> dict[str, Any]:
    """The config as it comes back from JSON."""
    return json.loads(json.dumps(config.to_dict()))


def check_settings(config: ConfigDict, workdir: Path, free: Sequence[str] = ()) -> None:
    """Refuses a workdir that holds a run of another config, but for its `free` fields."""
    file = workdir / SETTINGS
    try:
        before = json.loads(file.read_text("utf-8")) if file.exists() else settings_of(config)
    except (OSError, ValueError) as error:
        before, reason = None, error
    else:
        reason = "it is no object"
    if not isinstance(before, dict):
        raise UserError(
            f"{str(file)!r} cannot be read ({reason}); give another --workdir, or remove that one"
        )
    held, wanted = (
        {field: value for field, value in side.items() if field not in free}
        for side in (before, settings_of(config))
    )
    for field, (old, new) in differences(held, wanted):
        raise UserError(
            f"{str(workdir)!r} holds a run with {field} {old!r}, this config has {new!r}; give"
            " another --workdir, or remove that one"
        )


def differences(
    first: Any, second: Any, where: str = "config", missing: Any = None
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Dotted paths at which two trees differ, with both values; absent ones are `missing`."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            both = first.get(key, missing), second.get(key, missing)
            yield from differences(*both, f"{where}.{key}", missing)
    elif first != second:
        yield where, (first, second)
