"""Examples from text files: one segment per line, or JSON rows; gzip by the file's ending."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from specjax.data import files
from specjax.runtime.errors import UserError

Reference = str | tuple[str, ...]
"""A reference output, or several that are equally right."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A prompt, and the reference output if there is one."""

    source: str
    reference: Reference | None = None
    answer: str | None = None  # the text to learn, where it is more than the reference
    group: str | None = None  # the group of its results
    earlier: tuple[str, ...] = ()  # earlier messages of the user, which a model must answer first

    @property
    def output(self) -> str | None:
        """The text that a model should learn to generate."""
        if self.answer is not None or self.reference is None:
            return self.answer
        return self.reference if isinstance(self.reference, str) else self.reference[0]


def read_examples(
    source_file: str,
    reference_file: str = "",
    *,
    source_field: str = "source",
    reference_field: str = "reference",
    group_field: str = "",
) -> list[Example]:
    """Examples of parallel line files, or of one JSON file that holds both sides.

    `group_field` of its rows names their group; empty: they have none.

    Raises:
      UserError: when a file is missing, unreadable or empty, or the two sides differ in length.
    """
    names = source_field, reference_field, group_field
    examples = list(stream_examples(source_file, reference_file, *names))
    if not examples:
        raise UserError(f"source_file {source_file!r} is empty; it must hold at least one example")
    return examples


def stream_examples(
    source_file: str,
    reference_file: str = "",
    source_field: str = "source",
    reference_field: str = "reference",
    group_field: str = "",
) -> Iterator[Example]:
    """As `read_examples`, but as a lazy stream; empty for an empty file."""
    if is_json(source_file):
        yield from _json_examples(source_file, source_field, reference_field, group_field)
    elif reference_file:
        names = ("source_file", "reference_file")
        for pair in files.parallel(names, (source_file, reference_file)):
            yield Example(*pair)
    else:
        yield from map(Example, files.lines("source_file", source_file))


def is_json(file: str) -> bool:
    """Whether a file's ending is of JSON or JSON lines, gzip or not."""
    return Path(file.removesuffix(".gz")).suffix in (".jsonl", ".json")


def read_lines(field: str, file: str) -> list[str]:
    """All lines of a text file that contain text, without line ends.

    Raises:
      UserError: when the file cannot be read, or holds no text.
    """
    return list(files.text_lines(field, file))


def _json_examples(
    file: str, source_field: str, reference_field: str, group_field: str
) -> Iterator[Example]:
    needed = {"source": source_field} | ({"group": group_field} if group_field else {})
    for number, row in enumerate(files.json_rows("source_file", file), start=1):
        for name, field in needed.items():
            if not isinstance(row.get(field), str):
                raise UserError(
                    f"source_file {file!r} row {number} has no text in field {field!r}, only"
                    f" {', '.join(row) or 'nothing'}; name the field with {name}_field"
                )
        reference = row.get(reference_field)
        yield Example(
            row[source_field],
            reference if isinstance(reference, str) else None,
            group=row[group_field] if group_field else None,
        )
