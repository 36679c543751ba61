"""Where rows come from: one description for hub data sets, TFDS, local files and the grammar."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from specjax.data import files, grammar
from specjax.data.files import Row
from specjax.data.huggingface import hub_rows, parquet_rows
from specjax.data.prepared import tfds_rows
from specjax.errors import UserError

KINDS = {
    "hub": "a Hugging Face data set: path is its hub id",
    "parquet": "Parquet: path is a file, a glob, or a directory with splits",
    "tfds": "a prepared TensorFlow Datasets name in data_dir",
    "json": "a JSON array, or one JSON object per line; plain or .gz",
    "tsv": "tab-separated values under a header line; plain or .gz",
    "text": "one segment per line, with its other side in reference_path; plain or .gz",
    "grammar": "the built-in English-German sentences",
}

LOCAL = ("json", "tsv", "text")
"""Kinds whose path is one file of this machine."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A place that rows are read from; fields that a kind does not use are ignored."""

    kind: str  # one of KINDS
    path: str = ""
    reference_path: str = ""
    subset: str = ""
    split: str = "test"
    data_dir: str = ""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(f"kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        if not self.path and self.kind != "grammar":
            raise UserError(f"path is empty; kind {self.kind!r} reads {KINDS[self.kind]}")

    def __str__(self) -> str:
        return f"{self.kind} {self.path!r}" if self.path else self.kind


Rows = Source | Iterable[Mapping]
"""A source, or any Python iterable of dicts."""


def read(source: Rows, count: int = 0) -> list[Row]:
    """The first `count` rows, or all of them when it is 0.

    Raises:
      UserError: when the source cannot be read.
    """
    return list(itertools.islice(rows(source, count), count or None))


def rows(source: Rows, count: int = 0) -> Iterator[Row]:
    """Rows one after another, read when they are asked for.

    `count` bounds the grammar alone, which has no end; text lines become `text`, or `source` and
    `reference`, and the grammar's rows have `en` and `de`.

    Raises:
      UserError: when the source cannot be read.
    """
    if not isinstance(source, Source):
        return _python_rows(source)
    if source.kind == "grammar":
        return _grammar_rows(source.split, count)
    return _READERS[source.kind](source)


def _python_rows(source: Iterable[Mapping]) -> Iterator[Row]:
    for number, row in enumerate(source, start=1):
        if not isinstance(row, Mapping):
            raise UserError(f"row {number} is of type {type(row).__name__}; it must be a dict")
        yield dict(row)


def _grammar_rows(split: str, count: int) -> Iterator[Row]:
    if count < 1:
        raise UserError(f"count is {count}; the grammar has no end, so it must be at least 1")
    try:
        made = grammar.pairs(split, count)
    except ValueError as error:
        raise UserError(str(error)) from None
    return ({"en": pair.source, "de": pair.target} for pair in made)


def _text_rows(source: Source) -> Iterator[Row]:
    if not source.reference_path:
        return ({"text": line} for line in files.lines("path", source.path))
    pairs = files.parallel(("path", "reference_path"), (source.path, source.reference_path))
    return ({"source": first, "reference": second} for first, second in pairs)


_READERS: dict[str, Callable[[Source], Iterator[Row]]] = {
    "hub": lambda s: hub_rows(s.path, s.subset, s.split),
    "parquet": lambda s: parquet_rows(s.path, s.subset, s.split),
    "tfds": lambda s: tfds_rows(s.path, s.subset, s.split, s.data_dir),
    "json": lambda s: files.json_rows("path", s.path),
    "tsv": lambda s: files.tsv_rows("path", s.path),
    "text": _text_rows,
}
