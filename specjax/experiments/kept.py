"""Rows of a run that outlive it when it is killed: JSON lines in its workdir.

The first line says of what run they are.
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

from specjax import hosts
from specjax.data.batching import Prompt
from specjax.measuring.environment import environment
from specjax.paths import expanded
from specjax.writing import whole_lines, write_row


@contextlib.contextmanager
def kept_rows(
    file: Path, run: Mapping[str, Any]
) -> Iterator[tuple[list[dict[str, Any]], TextIO | None]]:
    """The rows of an earlier run that was killed, and where to write more (`write_row`).

    The file is removed when the body ends well. One of another `run` is written anew. Only the
    first process writes.

    Raises:
      UserError: when it is damaged.
    """
    run = json.loads(json.dumps(run))
    entries = hosts.from_first(whole_lines(file) if hosts.is_first() else [])
    rows = entries[1:] if entries and entries[0] == run else []
    if not hosts.is_first():
        yield rows, None
        return
    with file.open("a" if rows else "w", encoding="utf-8") as out:
        if not rows:
            write_row(out, run)
        yield rows, out
    file.unlink(missing_ok=True)


def identity(config: ConfigDict, prompts: Sequence[Prompt]) -> dict[str, Any]:
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
    stamps = {name: _stamps(expanded(name)) for name in names}
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
