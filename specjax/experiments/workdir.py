"""Files of a workdir: settings of its run, rows of an interrupted run, finished results.

The first line of a file of rows describes their run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Prompt
from specjax.hf.hub import split_head
from specjax.measuring.environment import environment
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path
from specjax.runtime.json_files import (
    cut_incomplete_line,
    stream_rows,
    whole_lines,
    write_json,
    write_row,
)


@contextlib.contextmanager
def resume_rows(
    file: Path, run: Mapping[str, Any]
) -> Iterator[tuple[list[dict[str, Any]], TextIO | None]]:
    """The rows of an interrupted run and the file to append to (`write_row`).

    The file is removed when the body succeeds. A file of another `run` is overwritten. Only the
    first process writes.

    Raises:
      UserError: when the file is damaged.
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


@contextlib.contextmanager
def resume_stream(file: Path, run: Mapping[str, Any]) -> Iterator[TextIO]:
    """As `resume_rows`, of one process that holds no rows: `stream_rows` reads the file's.

    The first of its rows is the `run`.

    Raises:
      UserError: when the file is damaged.
    """
    run = json.loads(json.dumps(run))
    kept = file.exists() and _describes(file, run)
    with file.open("a" if kept else "w", encoding="utf-8") as out:
        if not kept:
            write_row(out, run)
        yield out
    file.unlink()


def _describes(file: Path, run: Mapping[str, Any]) -> bool:
    """Whether the first row of a file is this run; removes an incomplete last line."""
    cut_incomplete_line(file)
    return next(stream_rows(file), (0, None))[1] == run


def describe_run(config: ConfigDict, prompts: Iterable[Prompt]) -> dict[str, Any]:
    """Everything that the outputs and times of a run depend on; holds no prompt."""
    fields, digest = config.to_dict(), hashlib.sha256()
    for prompt in prompts:
        digest.update(_bytes(prompt))
    return {
        "config": fields,
        "files": file_stamps(config),
        "prompts": digest.hexdigest(),
        "environment": environment(),
    }


def file_stamps(config: ConfigDict) -> dict[str, dict[str, list[int]]]:
    """Sizes and modification times of all files and folders in a config."""
    names = dict.fromkeys(_texts(config.to_dict()))
    stamps = {name: _stamps(expand_path(split_head(name)[0])) for name in names}
    return {name: files for name, files in stamps.items() if files}


def _bytes(prompt: Prompt) -> bytes:
    is_audio = isinstance(prompt, np.ndarray)
    return prompt.tobytes() if is_audio else json.dumps(prompt).encode()


def _texts(value: Any) -> Iterator[str]:
    """All non-empty strings in a config; some are file names."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, str) and value:
        yield value


def _stamps(path: Path) -> dict[str, list[int]]:
    """Size and time of a file or of a folder's files; nothing when it is missing."""
    try:
        files = path.iterdir() if os.path.isdir(path) else [path]
        stats = {file.name: file.stat() for file in sorted(files)}
    except (OSError, ValueError):
        return {}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


SETTINGS = "settings.json"
"""File in the workdir: the config of its run."""


def write_settings(config: ConfigDict, workdir: Path) -> None:
    """Writes the config of the run into the workdir."""
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / SETTINGS, to_json_settings(config))


def to_json_settings(config: ConfigDict) -> dict[str, Any]:
    """The config as it comes back from JSON."""
    return json.loads(json.dumps(config.to_dict()))


def check_settings(config: ConfigDict, workdir: Path, free: Sequence[str] = ()) -> None:
    """Refuses a workdir of another config; `free` fields may differ."""
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
    held, requested = (
        {field: value for field, value in side.items() if field not in free}
        for side in (before, to_json_settings(config))
    )
    for field, (old, new) in differences(held, requested):
        raise UserError(
            f"{str(workdir)!r} holds a run with {field} {old!r}, this config has {new!r}; give"
            " another --workdir, or remove that one"
        )


def differences(
    first: Any, second: Any, where: str = "config", missing: Any = None
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Dotted paths at which two trees differ, with both values; absent values are `missing`."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            both = first.get(key, missing), second.get(key, missing)
            yield from differences(*both, f"{where}.{key}", missing)
    elif first != second:
        yield where, (first, second)


RESULTS = "results.json"
"""File in the workdir of a finished run."""

_PLANNING = ("acceptance", "overwrite", "topology")
"""Fields that do not affect results."""

_MISSING = object()


def read_finished(config: ConfigDict, workdir: Path) -> dict[str, Any] | None:
    """The results of a finished run of the same config; None when there are none.

    With `config.overwrite` it is always None.

    Raises:
      UserError: when the workdir holds results of another run, naming what differs first.
    """
    if config.overwrite:
        return None
    # Only the first process checks: other hosts may see other files, and all must agree.
    content, refusal = processes.from_first(
        _find_results(config, workdir) if processes.is_first() else None
    )
    if refusal:
        raise UserError(refusal)
    if content is not None:
        print(
            f"{workdir / RESULTS} is of this config: shown, not run again; to run it again set"
            " config.overwrite to True"
        )
    return content


def _find_results(config: ConfigDict, workdir: Path) -> tuple[dict[str, Any] | None, str]:
    """Results of this config in a workdir, and the reason not to overwrite other ones."""
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
    """Describes how the run of a results.json differs from a config; empty: not at all."""
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
    """The content of a results.json; None for any other file."""
    try:
        content = json.loads(file.read_text("utf-8"))
        return content if isinstance(content["config"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
