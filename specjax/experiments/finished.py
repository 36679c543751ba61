"""Results that a workdir holds already: shown again, refused for another run, or overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax import hosts
from specjax.errors import UserError
from specjax.experiments.config.settings import differences, settings_of
from specjax.experiments.kept import file_stamps

RESULTS = "results.json"
"""In the workdir of a run that has ended."""

_PLANNING = ("acceptance", "overwrite", "topology")
"""Fields on which no result depends."""

_MISSING = object()


def finished(config: ConfigDict, workdir: Path) -> dict[str, Any] | None:
    """The results of an earlier run of the same config; None when there is something to run.

    With `config.overwrite` there always is.

    Raises:
      UserError: when the workdir holds results of another run, naming what differs first.
    """
    if config.overwrite:
        return None
    # The first process alone looks: other hosts may see other files, and all must do the same.
    content, refusal = hosts.from_first(_found(config, workdir) if hosts.is_first() else None)
    if refusal:
        raise UserError(refusal)
    if content is not None:
        print(
            f"{workdir / RESULTS} is of this config: shown, not run again; to run it again set"
            " config.overwrite to True"
        )
    return content


def _found(config: ConfigDict, workdir: Path) -> tuple[dict[str, Any] | None, str]:
    """The results of a workdir if they are of this config, and why they must not be overwritten."""
    file = workdir / RESULTS
    if not file.is_file():
        return None, ""
    content = _read(file)
    if content is None:
        return None, (
            f"{str(file)!r} holds no results of a run; name another workdir, remove the file, or"
            " set config.overwrite to True"
        )
    other = difference(content, config)
    if other:
        return None, (
            f"workdir {str(workdir)!r} holds results of another run: {other}; name another workdir,"
            " or set config.overwrite to True"
        )
    return content, ""


def difference(content: Mapping[str, Any], config: ConfigDict) -> str:
    """How the run of a results.json differs from that of a config, in words; empty: not at all."""
    now, before = (
        {name: value for name, value in side.items() if name not in _PLANNING}
        for side in (settings_of(config), content["config"])
    )
    for field, (new, old) in differences(now, before, missing=_MISSING):
        if old is _MISSING:
            return f"{field} is {new!r} and was not there"
        if new is _MISSING:
            return f"{field} was {old!r} and is not there"
        return f"{field} was {old!r} and is {new!r}"
    stamps = file_stamps(config)
    for file, stamp in content.get("files", {}).items():
        if stamps.get(file) != stamp:
            return f"{file!r} has changed since"
    return ""


def _read(file: Path) -> dict[str, Any] | None:
    """The content of a results.json; None when it is something else."""
    try:
        content = json.loads(file.read_text("utf-8"))
        return content if isinstance(content["config"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
