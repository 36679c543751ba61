"""Writing result files so that a crash leaves the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specjax.errors import UserError

_PROBE = 2**16
"""Bytes that a folder must have room for."""

_SHOWN = 200
"""Characters of a path that a refusal shows."""


def check_folder(field: str, folder: Path) -> None:
    """Refuses a folder that cannot be made or written to; leaves nothing behind.

    Raises:
      UserError: naming the field and what the system says.
    """
    try:
        # The nearest parent that is there keeps what it holds: only what is made here goes again.
        made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(_PROBE))
        finally:
            for each in made:
                with contextlib.suppress(OSError):
                    each.rmdir()
    except (OSError, ValueError) as error:
        # A null byte is a ValueError.
        reason = getattr(error, "strerror", None) or error
        shown = str(folder) if len(str(folder)) <= _SHOWN else f"{str(folder)[:_SHOWN]}..."
        raise UserError(f"{field} {shown!r} cannot be written to: {reason}") from None


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path beside `file` to write to; it takes the place of `file` when all went well."""
    partial = file.with_name(f".{file.stem}.partial{file.suffix}")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A directory to write into; it takes the place of `path` when all went well."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        partial = Path(folder) / path.name
        partial.mkdir()
        yield partial
        if path.exists():
            path.rename(Path(folder) / "replaced")
        partial.rename(path)


def write_json(file: Path, content: Any) -> None:
    """Writes JSON, indented."""
    with replacing(file) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object per line."""
    with replacing(file) as partial, open(partial, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
