"""What a workdir holds: the settings of its run, rows that outlive a kill, finished results.

The first line of a file of rows says of what run they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Prompt
from specjax.measuring.environment import environment
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path, whole_lines, write_json, write_row


@contextlib.contextmanager
def resume_rows(
    file: Path, run: Mapping[str, Any]
) -> Iterator[tuple[list[dict[str, Any]], TextIO | None]]:
    """The rows of an earlier run that was killed, and where to write more (`write_row`).

    The file is removed when the body ends well. One of another `run` is written anew. Only the
    first process writes.

    Raises:
      UserError: when it is damaged.
    """
    run = json.loads(json.dumps(run))
    entries = processes.from_first(whole_lines(file) if processes.is_first() else [])
    rows = entries[1:] if entries and entries[0] == run else []
    if not processes.is_first():
        yield rows, None
        return
    with file.open("a" if rows else "w", encoding="utf-8") as out:
        if not rows:
            write_row(out, run)
        yield rows, out
    file.unlink(missing_ok=True)


def describe_run(config: ConfigDict, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """What the decodes of a run depend on, and their times."""
    fields = config.to_dict()
    return {
        "config": fields,
        "files": file_stamps(config),
        "prompts": hashlib.sha256(b"".join(map(_bytes, prompts))).hexdigest(),
        "environment": environment(),
    }


def file_stamps(config: ConfigDict) -> dict[str, dict[str, list[int]]]:
    """Sizes and times of the files, and of those in the folders, that a config names."""
    names = dict.fromkeys(_texts(config.to_dict()))
    stamps = {name: _stamps(expand_path(name)) for name in names}
    return {name: files for name, files in stamps.items() if files}


def _bytes(prompt: Prompt) -> bytes:
    heard = isinstance(prompt, np.ndarray)
    return prompt.tobytes() if heard else json.dumps(prompt).encode()


def _texts(value: Any) -> Iterator[str]:
    """All texts in a config that are not empty: some name files."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, str) and value:
        yield value


def _stamps(path: Path) -> dict[str, list[int]]:
    """Size and time of a file, or of those in a folder; nothing when there is none."""
    try:
        files = path.iterdir() if os.path.isdir(path) else [path]
        stats = {file.name: file.stat() for file in sorted(files)}
    except (OSError, ValueError):
        return {}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


SETTINGS = "settings.json"
"""In the workdir: the config of the run that it holds."""


def write_settings(config: ConfigDict, workdir: Path) -> None:
    """Makes the workdir one of this config."""
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / SETTINGS, to_json_settings(config))


def to_json_settings(config: ConfigDict) -> dict[str, Any]:
    """The config as it comes back from JSON."""
    return json.loads(json.dumps(config.to_dict()))


def check_settings(config: ConfigDict, workdir: Path, free: Sequence[str] = ()) -> None:
    """Refuses a workdir that holds a run of another config, but for its `free` fields."""
    file = workdir / SETTINGS
    try:
        before = json.loads(file.read_text("utf-8")) if file.exists() else to_json_settings(config)
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
        for side in (before, to_json_settings(config))
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


RESULTS = "results.json"
"""In the workdir of a run that has ended."""

_PLANNING = ("acceptance", "overwrite", "topology")
"""Fields on which no result depends."""

_MISSING = object()


def read_finished(config: ConfigDict, workdir: Path) -> dict[str, Any] | None:
    """The results of an earlier run of the same config; None when there is something to run.

    With `config.overwrite` there always is.

    Raises:
      UserError: when the workdir holds results of another run, naming what differs first.
    """
    if config.overwrite:
        return None
    # The first process alone looks: other hosts may see other files, and all must do the same.
    content, refusal = processes.from_first(
        _found(config, workdir) if processes.is_first() else None
    )
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
    other = describe_difference(content, config)
    if other:
        return None, (
            f"workdir {str(workdir)!r} holds results of another run: {other}; name another workdir,"
            " or set config.overwrite to True"
        )
    return content, ""


def describe_difference(content: Mapping[str, Any], config: ConfigDict) -> str:
    """How the run of a results.json differs from that of a config, in words; empty: not at all."""
    now, before = (
        {name: value for name, value in side.items() if name not in _PLANNING}
        for side in (to_json_settings(config), content["config"])
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
