"""Examples from text files: one segment per line, or JSON lines; gzip by the file's ending."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from specjax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Example:
    """A prompt without its task prefix, and the reference output if there is one."""

    source: str
    reference: str | None = None


def read_examples(
    source_file: str,
    reference_file: str = "",
    *,
    source_field: str = "source",
    reference_field: str = "reference",
) -> list[Example]:
    """Examples of parallel line files, or of one JSONL file that holds both sides.

    Raises:
      UserError: when a file is missing, unreadable or empty, or the two sides differ in length.
    """
    if Path(source_file.removesuffix(".gz")).suffix == ".jsonl":
        return _read_jsonl(source_file, source_field, reference_field)
    sources = read_lines("source_file", source_file)
    if not sources:
        raise UserError(f"source_file {source_file!r} is empty; it must hold at least one example")
    if not reference_file:
        return [Example(source) for source in sources]
    references = read_lines("reference_file", reference_file)
    if len(references) != len(sources):
        raise UserError(
            f"reference_file {reference_file!r} has {len(references)} lines, "
            f"source_file has {len(sources)}; they must match line by line"
        )
    return [Example(s, r) for s, r in zip(sources, references, strict=True)]


def read_lines(field: str, file: str) -> list[str]:
    """Lines of a text file without their ends; other Unicode separators stay inside a line."""
    try:
        with open_text(file) as lines:
            return [line.rstrip("\n") for line in lines]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"{field} {file!r} cannot be read: {reason}") from None


def open_text(file: str) -> TextIO:
    """A UTF-8 text file, plain or gzip."""
    opener = gzip.open if file.endswith(".gz") else open
    return opener(file, "rt", encoding="utf-8", newline="\n")


def _read_jsonl(file: str, source_field: str, reference_field: str) -> list[Example]:
    examples = [
        _json_example(file, number, row, source_field, reference_field)
        for number, row in _json_rows(file)
    ]
    if not examples:
        raise UserError(f"source_file {file!r} is empty; it must hold at least one example")
    return examples


def _json_rows(file: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(read_lines("source_file", file), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"source_file {file!r} line {number} is not JSON: {error}") from None


def _json_example(
    file: str, number: int, row: object, source_field: str, reference_field: str
) -> Example:
    if not isinstance(row, dict) or not isinstance(row.get(source_field), str):
        raise UserError(
            f"source_file {file!r} line {number} has no text in field {source_field!r}; "
            "name the fields with source_field and reference_field"
        )
    reference = row.get(reference_field)
    return Example(row[source_field], reference if isinstance(reference, str) else None)
