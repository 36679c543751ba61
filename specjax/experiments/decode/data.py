"""Loads the examples of a config from a task or plain files."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_collections import ConfigDict

from specjax.contracts.registry import TASKS
from specjax.data import examples as of_task
from specjax.data.sources import KINDS, Source
from specjax.data.task import get_task
from specjax.data.text import Example, Reference, read_examples, stream_examples
from specjax.metrics.metric import get_metric
from specjax.prompts import check_chat_template_kwargs
from specjax.runtime.errors import UserError

NO_METRIC = "none"
"""Default metric when neither the config nor a task names one."""

BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "json",
    ".tsv": "tsv",
    ".txt": "text",
    ".parquet": "parquet",
}


def collect_references(examples: Iterable[Example]) -> list[Reference]:
    """The references of the examples; all have one if a metric scores them."""
    return [example.reference for example in examples if example.reference is not None]


@dataclasses.dataclass(frozen=True)
class Data:
    """Examples to decode, their metric, and the remaining rows for tables."""

    examples: list[Example]
    metric: str
    rest: list[Example]


def load_data(config: ConfigDict, more: bool, place: str = "config") -> Data:
    """The examples of a config; with `more` also the rows that are not decoded.

    `place` is the path of the fields in the whole config, for error messages.

    Raises:
      UserError: when they cannot be read, one is blank, or the metric has no references to compare
        with.
    """
    check_one_source(config, place)
    examples = _task_examples(config, more, place) if config.task else _file_examples(config, place)
    _check_prefix(config, examples[:1], place)
    count = config.examples or len(examples)
    _check_blank(config, examples[:count], place)
    metric = choose_metric(config)
    if get_metric(metric).scores:
        _check_references(metric, examples[:count], place)
    return Data(examples[:count], metric, examples[count:])


def choose_metric(config: ConfigDict) -> str:
    """The metric of the config, else the task's, else none."""
    return config.metric or (get_task(config.task).metric if config.task else NO_METRIC)


def stream(config: ConfigDict) -> Iterator[Example]:
    """Streams the first `config.examples` examples, or all when it is 0.

    Sources include `config.prefix`.

    Raises:
      UserError: when they cannot be read.
    """
    for example in _stream_rows(config, config.examples):
        check_single_turn(config, example)
        yield dataclasses.replace(example, source=config.prefix + example.source)


def _stream_rows(config: ConfigDict, count: int) -> Iterator[Example]:
    """The first `count` examples of the source, or all when it is 0."""
    if config.task:
        return of_task.stream(config.task, get_source(config), count, config.turns)
    return itertools.islice(stream_examples(*_files(config), **_json_fields(config)), count or None)


def stream_checked(config: ConfigDict) -> Iterator[Example]:
    """The examples of `load_data` one after another, each with the checks of all.

    Raises:
      UserError: as `load_data`, and when one has earlier messages.
    """
    metric = choose_metric(config)
    scores = get_metric(metric).scores
    for number, example in enumerate(_stream_rows(config, config.examples)):
        if example.earlier:
            raise UserError(
                f"config.batching is {config.batching!r} with task {config.task!r}, whose later"
                " messages follow answers to earlier ones; it must be 'static', or config.turns 1"
            )
        if number == 0:
            _check_prefix(config, [example], "config")
        _check_text(config, number, example)
        if scores:
            _check_references(metric, [example], "config")
        yield example


def read_rest(config: ConfigDict) -> list[Example]:
    """The examples of `load_data` that are not decoded."""
    if not config.examples:
        return []
    count = config.examples + config.ngram_examples if config.task else 0
    return list(itertools.islice(_stream_rows(config, count), config.examples, None))


def check_single_turn(config: ConfigDict, example: Example) -> None:
    """Refuses tasks with turns that follow a model's answers.

    Raises:
      UserError: naming the task.
    """
    if example.earlier:
        raise UserError(
            f"config.task is {config.task!r}, whose later messages follow answers to earlier ones;"
            " only decode and beams experiments generate these; config.turns 1 reads first messages"
        )


def check_one_source(config: ConfigDict, place: str = "config") -> None:
    """Refuses a plain file together with a task, and turns without a task.

    Raises:
      UserError: naming the fields.
    """
    if config.turns and not config.task:
        raise UserError(
            f"{place}.turns is {config.turns} and {place}.task empty; it must be 0: only a task has"
            " conversations"
        )
    if config.task and config.source_file:
        raise UserError(
            f"{place}.source_file is {config.source_file!r} with {place}.task {config.task!r};"
            f" only one of them can be read: clear the other by {place}.task= or"
            f" {place}.source_file=, or give the task its rows by {place}.data.path"
        )


def check_sources(config: ConfigDict, field: str) -> None:
    """Refuses entries of `config[field]` with both a task and a file, or neither.

    Raises:
      UserError: naming the fields.
    """
    for name, source in config[field].items():
        if bool(source.task) == bool(source.source_file):
            raise UserError(
                f"config.{field}.{name} has task {source.task!r} and source_file"
                f" {source.source_file!r}; exactly one of them must be set"
            )


def _check_blank(config: ConfigDict, examples: list[Example], place: str) -> None:
    """Refuses examples of a plain file without a text; tasks leave such rows out."""
    blank = [number for number, each in enumerate(examples, start=1) if not each.source.strip()]
    if blank and not config.task:
        raise UserError(
            f"{place}.source_file {config.source_file!r} has no text in example {blank[0]:,}"
            f" ({len(blank):,} of {len(examples):,} have none); every example must have some"
        )


def _check_text(config: ConfigDict, number: int, example: Example) -> None:
    """Refuses an example of a plain file without a text."""
    if not (example.source.strip() or config.task):
        raise UserError(
            f"config.source_file {config.source_file!r} has no text in example {number + 1:,};"
            " every example must have some"
        )


def _check_references(metric: str, examples: list[Example], place: str) -> None:
    """Refuses examples without a reference."""
    if any(example.reference is None for example in examples):
        raise UserError(
            f"{place}.metric is {metric!r}, but not every example has a reference; "
            f"give {place}.reference_file, or metric {NO_METRIC!r}"
        )


def _check_prefix(config: ConfigDict, first: list[Example], place: str) -> None:
    """Refuses a prefix that the task's prompts already begin with."""
    is_prefixed = any(example.source.startswith(config.prefix) for example in first)
    if config.task and config.prefix and is_prefixed:
        raise UserError(
            f"{place}.prefix is {config.prefix!r}, with which the prompts of task {config.task!r}"
            " begin already; leave it empty"
        )


def check_chat(config: ConfigDict) -> None:
    """Refuses a system message or template variables without a chat.

    Raises:
      UserError: naming the field.
    """
    variables = config.chat_template_kwargs.to_dict()
    check_chat_template_kwargs(variables, "config.")
    if variables and not config.chat:
        raise UserError(
            f"config.chat_template_kwargs is {variables} and config.chat False; only a chat has a"
            " template: set config.chat to True, or leave them out"
        )
    if config.system and not config.chat:
        raise UserError(
            f"config.system is {config.system!r} and config.chat False; only a chat begins with it:"
            " set config.chat to True, or put it into config.prefix"
        )


def check_one_place(config: ConfigDict, field: str) -> None:
    """Refuses none or several sources: the text in `field`, a task, or plain files.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    given = [name for name in (field, "task", "source_file") if config[name]]
    if not given:
        raise UserError(
            f"config.{field} is empty, as are config.task and config.source_file; one of the three"
            " must be set"
        )
    if len(given) > 1:
        first, second = given[:2]
        raise UserError(
            f"config.{second} is {config[second]!r} with config.{first}; only one of them can"
            " be read"
        )


def data_words(config: ConfigDict) -> str:
    """Describes the data that `stream` would read, without opening it.

    Raises:
      UserError: when no source is set, or a plain file is missing.
    """
    if config.task:
        return f"task {config.task!r} from {of_task.choose_source(config.task, get_source(config))}"
    given = zip(("source_file", "reference_file"), _files(config), strict=True)
    return " and ".join(file_words(field, file) for field, file in given if file)


def file_words(field: str, file: str) -> str:
    """Describes a file and its size.

    Raises:
      UserError: when it is missing.
    """
    if not os.path.isfile(file):
        raise UserError(f"{field} {file!r} is not a file; it must be text or JSONL, plain or .gz")
    return f"{field} {file!r} ({Path(file).stat().st_size / 1e6:.1f} MB)"


def _task_examples(config: ConfigDict, more: bool, place: str) -> list[Example]:
    count = config.examples
    if count and more:
        count += config.ngram_examples
    return of_task.examples(config.task, get_source(config, place), count, config.turns)


def get_source(config: ConfigDict, place: str = "config") -> Source | None:
    """The source that replaces the task's own; None when `config.data` is empty."""
    fields = {name: value for name, value in config.data.items() if value}
    default = get_task(config.task).source
    if not fields:
        return None
    if "path" not in fields and fields.get("kind") != "grammar":
        if default is None:
            raise UserError(f"{place}.data.path is empty, and task {config.task!r} has no source")
        return dataclasses.replace(default, **fields)
    kind = "text" if fields.get("reference_path") else detect_kind(config.data.path, place)
    return Source(**{"kind": kind, **fields})


def detect_kind(path: str, place: str = "config") -> str:
    """Detects the kind of a path: by its ending, a directory of Parquet, or a hub id."""
    suffix = Path(path.removesuffix(".gz")).suffix
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    if os.path.isdir(path):
        return "parquet"
    if os.path.exists(path) or path.startswith((".", "/")):
        raise UserError(
            f"{place}.data.path {path!r} has an unknown ending; set {place}.data.kind to"
            f" one of {', '.join(KINDS)}"
        )
    return "hub"


def _file_examples(config: ConfigDict, place: str) -> list[Example]:
    return read_examples(*_files(config, place), **_json_fields(config))


def _files(config: ConfigDict, place: str = "config") -> tuple[str, str]:
    if not config.source_file:
        raise UserError(
            f"{place}.source_file is empty; it must be a text or JSONL file, or {place}.task one of"
            f" {', '.join(TASKS)}"
        )
    return config.source_file, config.reference_file


def _json_fields(config: ConfigDict) -> dict[str, str]:
    names = ("source_field", "reference_field", "group_field")
    return {name: config[name] for name in names}
