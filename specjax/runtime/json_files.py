"""JSON files: written whole, read as objects, and rows of logs that are resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular, replacing

_BLOCK = 2**16
"""Bytes that are searched at a time for the last line's begin."""


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a JSON file, which must exist and be an object."""
    check_regular(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"model directory {str(path.parent)!r} has no {path.name}") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also endless numbers, and endless nesting
        raise UserError(f"{str(path)!r} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object, not {type(content).__name__}")
    return content


def write_json(file: Path, content: Any) -> None:
    """Writes JSON, indented."""
    with replacing(file) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object per line."""
    with replacing(file) as partial, open(partial, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file; removes an incomplete last line.

    Raises:
      UserError: when another line is damaged.
    """
    if not file.exists():
        return []
    cut_incomplete_line(file)
    return [row for _, row in stream_rows(file)]


def cut_incomplete_line(file: Path) -> None:
    """Removes the last line of a file if it has no end; holds none of the others."""
    with file.open("rb") as opened:
        size = end = opened.seek(0, os.SEEK_END)
        while end:
            begin = max(end - _BLOCK, 0)
            opened.seek(begin)
            found = opened.read(end - begin).rfind(b"\n")
            end = begin + found + 1
            if found >= 0:
                break
    if end < size:
        os.truncate(file, end)


def stream_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row of a file of whole lines, with the byte at which it begins.

    Raises:
      UserError: when a line is damaged.
    """
    place = 0
    with file.open("rb") as opened:
        for number, line in enumerate(opened, start=1):
            if text := line.decode("utf-8", "replace").rstrip("\n"):
                yield place, _row(file, number, text)
            place += len(line)


def write_row(file: TextIO | None, row: Mapping[str, Any], *, ensure_ascii: bool = True) -> None:
    """Appends a row for `whole_lines`; does nothing without a file."""
    if file:
        file.write(json.dumps(row, ensure_ascii=ensure_ascii) + "\n")
        file.flush()


def _row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UserError(
            f"{str(file)!r} line {number} is damaged; remove the file, or use another workdir"
        )
    return row
