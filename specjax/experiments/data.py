"""The examples of a decode config: a task's, or plain files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ml_collections import ConfigDict

from specjax.data import tasks
from specjax.data.sources import KINDS, Source
from specjax.data.text import Example, read_examples
from specjax.errors import UserError

BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "json",
    ".tsv": "tsv",
    ".txt": "text",
    ".parquet": "parquet",
}


@dataclasses.dataclass(frozen=True)
class Data:
    """What is decoded, how it is scored, and what is left to fit n-grams from."""

    examples: list[Example]
    metric: str
    rest: list[Example]


def load_data(config: ConfigDict, more: bool) -> Data:
    """The examples of a config; `more` also reads rows beyond those that are decoded.

    Raises:
      UserError: when they cannot be read, or the metric has no references to compare with.
    """
    found = _task_examples(config, more) if config.task else _file_examples(config)
    count = config.examples or len(found)
    metric = config.metric or (tasks.TASKS[config.task].metric if config.task else "none")
    if metric != "none" and any(e.reference is None for e in found[:count]):
        raise UserError(
            f"config.metric is {metric!r}, but not every example has a reference; "
            "give config.reference_file, or metric 'none'"
        )
    return Data(found[:count], metric, found[count:])


def _task_examples(config: ConfigDict, more: bool) -> list[Example]:
    count = config.examples
    if count and more and not config.ngram_file:
        count += config.ngram_examples
    return tasks.examples(config.task, source_of(config), count)


def source_of(config: ConfigDict) -> Source | None:
    """The source that replaces the task's own; None when `config.data` is empty."""
    fields = {name: value for name, value in config.data.items() if value}
    default = tasks.TASKS[config.task].source
    if not fields:
        return None
    if "path" not in fields and fields.get("kind") != "grammar":
        if default is None:
            raise UserError(f"config.data.path is empty, and task {config.task!r} has no source")
        return dataclasses.replace(default, **fields)
    kind = "text" if fields.get("reference_path") else kind_of(config.data.path)
    return Source(**{"kind": kind, **fields})


def kind_of(path: str) -> str:
    """What a path without a `kind` is: by its ending, a directory of Parquet, or a hub id."""
    suffix = Path(path.removesuffix(".gz")).suffix
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    if Path(path).is_dir():
        return "parquet"
    if Path(path).exists() or path.startswith((".", "/")):
        raise UserError(
            f"config.data.path {path!r} has an ending that says nothing; set config.data.kind to"
            f" one of {', '.join(KINDS)}"
        )
    return "hub"


def _file_examples(config: ConfigDict) -> list[Example]:
    if not config.source_file:
        raise UserError(
            "config.source_file is empty; it must be a text or JSONL file, or config.task one of"
            f" {', '.join(tasks.TASKS)}"
        )
    return read_examples(
        config.source_file,
        config.reference_file,
        source_field=config.source_field,
        reference_field=config.reference_field,
    )
