"""The interface of a task: its source of rows, and their prompts and references."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.text import Reference
from specjax.runtime.errors import UserError

LANGUAGES = {"de": "German", "en": "English", "fr": "French", "ro": "Romanian"}
"""The languages that T5 translates, by their codes."""


class Task(abc.ABC):
    """How rows become prompts and references, and how outputs are scored."""

    source: ClassVar[Source | None]
    """Its own source, of Parquet or JSON files, as `datasets` runs no scripts. Another source with
    the same columns works as well. None: there is no public data set."""

    reads: ClassVar[str]
    """Describes the required columns of a row."""

    metric: ClassVar[str]
    """A name of `contracts.registry.METRICS`."""

    group: ClassVar[str] = ""
    """The column that results are grouped by, if a row has it."""

    example: ClassVar[Row]
    """A row of the source."""

    @abc.abstractmethod
    def prompt(self, row: Row) -> str:
        """The complete prompt of a row; empty when the task cannot use it.

        Raises:
          RowError: when the row lacks what the task reads.
        """

    def turns(self, row: Row) -> tuple[str, ...]:
        """The user's messages of a row, each of which makes an example; most tasks have one.

        Raises:
          RowError: when the row lacks what the task reads.
        """
        return (self.prompt(row),)

    def group_name(self, row: Row) -> str | None:
        """The group of a row; None where it has none.

        Raises:
          RowError: when the row lacks what the task reads.
        """
        return row.get(self.group)

    def resolve_paths(self, row: Row, folder: Path) -> Row:
        """The row of a local file, with relative file names resolved next to that file."""
        return row

    def reference(self, row: Row) -> Reference | None:
        """The output as the metric compares it; None without one."""
        return None

    def answer(self, row: Row) -> str | None:
        """The text to learn, if it differs from the reference."""
        return None


class Translation(Task):
    """A translation with T5's prompt."""

    languages: ClassVar[tuple[str, str]]
    """Codes of `LANGUAGES`: from and to."""

    metric = "bleu"
    example = {"translation": {"de": "Ein Hund läuft.", "en": "A dog runs."}}

    def __init_subclass__(cls) -> None:
        if "languages" in vars(cls):
            both = " and ".join(cls.languages)
            cls.reads = f"{both}, these two in translation, or source and reference"

    def prompt(self, row: Row) -> str:
        source, target = self.languages
        start = f"translate {LANGUAGES[source]} to {LANGUAGES[target]}: "
        return add_prefix(start, columns.side(row, source, "source"))

    def reference(self, row: Row) -> str:
        return columns.side(row, self.languages[1], "reference")


class Continuation(Task):
    """The continuation of a line's first words; shorter lines are not used."""

    reads = "text"
    metric = "none"
    words: ClassVar[int]
    """Number of words in the prompt."""

    def prompt(self, row: Row) -> str:
        words = columns.text(row, "text").split()
        return " ".join(words[: self.words]) if len(words) >= self.words else ""

    def answer(self, row: Row) -> str:
        return " ".join(columns.text(row, "text").split()[self.words :])


def get_task(name: str) -> Task:
    """The task of a registered name.

    Raises:
      UserError: when there is none.
    """
    if name not in TASKS:
        raise UserError(f"task is {name!r}; it must be one of {', '.join(TASKS)}")
    return TASKS[name].cls()


def add_prefix(start: str, text: str) -> str:
    """The prompt: `start` and the text; empty for a blank text."""
    return start + text if text.strip() else ""


def question(row: Row) -> str:
    """A bare question for decoder-only models."""
    return f"Q: {words}\nA:" if (words := columns.text(row, "question")).strip() else ""
