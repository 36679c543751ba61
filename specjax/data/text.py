"""Examples from text files: one segment per line, or JSON rows; gzip by the file's ending."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from specjax.data import files
from specjax.errors import UserError

Reference = str | tuple[str, ...]
"""A reference output, or several that are equally right."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A prompt, and the reference output if there is one."""

    source: str
    reference: Reference | None = None
    answer: str | None = None  # the text to learn, where it is more than the reference

    @property
    def output(self) -> str | None:
        """The text that a model should learn to say."""
        if self.answer is not None or self.reference is None:
            return self.answer
        return self.reference if isinstance(self.reference, str) else self.reference[0]


def read_examples(
    source_file: str,
    reference_file: str = "",
    *,
    source_field: str = "source",
    reference_field: str = "reference",
) -> list[Example]:
    """Examples of parallel line files, or of one JSON file that holds both sides.

    Raises:
      UserError: when a file is missing, unreadable or empty, or the two sides differ in length.
    """
    fields = {"source_field": source_field, "reference_field": reference_field}
    found = list(stream_examples(source_file, reference_file, **fields))
    if not found:
        raise UserError(f"source_file {source_file!r} is empty; it must hold at least one example")
    return found


def stream_examples(
    source_file: str,
    reference_file: str = "",
    *,
    source_field: str = "source",
    reference_field: str = "reference",
) -> Iterator[Example]:
    """The same one after another, read when they are asked for; an empty file has none."""
    if is_json(source_file):
        yield from _json_examples(source_file, source_field, reference_field)
    elif reference_file:
        names = ("source_file", "reference_file")
        for pair in files.parallel(names, (source_file, reference_file)):
            yield Example(*pair)
    else:
        yield from map(Example, files.lines("source_file", source_file))


def is_json(file: str) -> bool:
    """Whether a file's ending says JSON or JSON lines, gzip or not."""
    return Path(file.removesuffix(".gz")).suffix in (".jsonl", ".json")


def read_lines(field: str, file: str) -> list[str]:
    """All lines of a text file without their ends."""
    return list(files.lines(field, file))


def _json_examples(file: str, source_field: str, reference_field: str) -> Iterator[Example]:
    for number, row in enumerate(files.json_rows("source_file", file), start=1):
        if not isinstance(row.get(source_field), str):
            raise UserError(
                f"source_file {file!r} row {number} has no text in field {source_field!r}, "
                f"only {', '.join(row) or 'nothing'}; "
                "name the fields with source_field and reference_field"
            )
        reference = row.get(reference_field)
        yield Example(row[source_field], reference if isinstance(reference, str) else None)
