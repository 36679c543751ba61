"""Sources of rows: hub data sets, TFDS, local files and the grammar."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from specjax.data import files, grammar
from specjax.data.files import Row
from specjax.runtime.errors import UserError

REACH_SECONDS = 5.0


def hub_rows(path: str, subset: str, split: str) -> Iterator[Row]:
    """Rows of a hub id, which is downloaded once; without network they come from the cache.

    Raises:
      UserError: when the hub id, its subset or its split cannot be loaded.
    """
    reachable = hub_is_reachable()
    with _convert_errors(path, subset, split, reachable), _offline(not reachable):
        rows = _load(path, subset or None, split=split)
    yield from rows


def parquet_rows(path: str, subset: str, split: str) -> Iterator[Row]:
    """Rows of a Parquet file, of the files that match a glob, or of a directory's split.

    Files and globs may be on the hub too, as `hf://datasets/...`. They are read whole: `subset`
    and `split` choose within a directory only.

    Raises:
      UserError: when there is no such file, subset or split, or it is not Parquet.
    """
    with _convert_errors(path, subset, split, reachable=True):
        if os.path.isdir(path):
            yield from _load(path, subset or None, split=split, streaming=True)
        else:
            _check_there(path)
            yield from _load("parquet", data_files=path, split="train", streaming=True)


def hub_is_reachable() -> bool:
    """Whether the hub answers within a few seconds."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=REACH_SECONDS)
    except Exception:  # any failure here would fail in `datasets` too, after long retries
        return False
    return True


def _check_there(path: str) -> None:
    if path.startswith("hf://"):
        if not hub_is_reachable():
            raise ConnectionError
        return
    files = glob.glob(path)
    if not files:
        raise FileNotFoundError("no such file or directory")
    for file in files:
        if not os.path.isfile(file):
            raise FileNotFoundError(f"{file!r} is not a file")


def _load(*args: Any, **kwargs: Any) -> Any:
    import datasets

    return datasets.load_dataset(*args, **kwargs)


@contextlib.contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Puts `datasets` offline, which otherwise retries the hub for half a minute."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = before or wanted
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _convert_errors(path: str, subset: str, split: str, reachable: bool) -> Iterator[None]:
    """Converts errors of `datasets` into one sentence about the source."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except ConnectionError:
        reason = "not in the cache, and the Hugging Face hub cannot be reached"
        raise UserError(
            f"path {path!r} is {reason}; connect, or name a local file in data.path"
        ) from None
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        cached = "" if reachable else " from the cache, as the Hugging Face hub cannot be reached"
        raise UserError(
            f"path {path!r} (subset {subset!r}, split {split!r}) cannot be read{cached}: {reason}"
        ) from None


def tfds_rows(path: str, subset: str, split: str, data_dir: str) -> Iterator[Row]:
    """Rows of a data set `name`, `name/config` or `name/config:version`; text is decoded.

    The data set must be prepared in `data_dir` with `file_format="array_record"`: record files
    of other formats cannot be read at random, and preparing most of them needs TensorFlow.

    Raises:
      UserError: when it is not there, or was prepared in another format.
    """
    name = f"{path}/{subset}" if subset else path
    for row in _data_source(name, split, data_dir):
        yield _plain(row)


def _data_source(name: str, split: str, data_dir: str) -> Iterable[Any]:
    import tensorflow_datasets as tfds

    try:
        return tfds.data_source(name, split=split, data_dir=data_dir or None, download=False)
    except (ValueError, AssertionError, NotImplementedError, OSError) as error:
        absent = isinstance(error, NotImplementedError)
        reason = "there is none in this format" if absent else str(error).splitlines()[0]
        raise UserError(
            f"path {name!r} (split {split!r}, data_dir {data_dir!r}) must be a data set that TFDS "
            f"prepared as array_record: {reason}"
        ) from None


def _plain(value: Any) -> Any:
    """Converts bytes to text and arrays to Python values."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


T = TypeVar("T")


def hold_out(rows: Iterable[T], count: int, seed: int) -> tuple[list[T], Iterator[T]]:
    """A uniform sample of `count` rows, and the other rows.

    The sample is complete when the other rows have been read; nothing else is held (reservoir
    sampling, Vitter 1985, algorithm R). The others may come out of order.

    Raises:
      UserError: at the end, when no row is left after the sample.
    """
    held: list[T] = []
    return held, _others(rows, held, count, np.random.default_rng(seed))


def _others(
    rows: Iterable[T], held: list[T], count: int, generator: np.random.Generator
) -> Iterator[T]:
    row_count = 0
    for row in rows:
        row_count += 1
        place = int(generator.integers(row_count))
        if len(held) < count:
            held.append(row)
        elif place < count:
            yield held[place]
            held[place] = row
        else:
            yield row
    if row_count <= count:
        raise UserError(
            f"config.heldout is {count}; it must be less than the rows with text, which are"
            f" {row_count}"
        )


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
    """Streams the rows of a source.

    `count` only bounds the grammar, which has no end; text lines become `text`, or `source` and
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
