"""Examples of a task: prompts with references, from its own source or another one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from specjax.data.columns import RowError
from specjax.data.sources import LOCAL, Rows, Source, rows
from specjax.data.task import get_task
from specjax.data.text import Example
from specjax.runtime.errors import UserError


def examples(
    task: str, source: Rows | None = None, count: int = 0, turns: int = 0
) -> list[Example]:
    """The first `count` usable examples of a task, or all of them when it is 0.

    Rows that the task cannot use, such as empty or short lines, are left out.

    Args:
      task: a name of `contracts.registry.TASKS`.
      source: read instead of the task's own source.
      count: the most examples to return.
      turns: how many messages of a conversation become examples, the first ones; 0 for all.

    Raises:
      UserError: when the task is unknown, its source cannot be read, a row lacks a field, or no
        row can be used.
    """
    examples = list(stream(task, source, count, turns))
    if not examples:
        raise UserError(
            f"{_name(choose_source(task, source))} has no row that task {task!r} can use"
        )
    return examples


def stream(
    task: str, source: Rows | None = None, count: int = 0, turns: int = 0
) -> Iterator[Example]:
    """As `examples`, but as a lazy stream, which may be empty."""
    source = choose_source(task, source)
    return itertools.islice(_usable(task, source, count, turns), count or None)


def choose_source(task: str, source: Rows | None = None) -> Rows:
    """The source of a task: `source`, or the task's own.

    Raises:
      UserError: when the task is unknown, or has no source of its own and none is given.
    """
    chosen = get_task(task)
    found = chosen.source if source is None else source
    if found is None:
        raise UserError(
            f"task {task!r} has no source of its own; give a file whose rows have {chosen.reads}"
        )
    return found


def _usable(name: str, source: Rows, count: int, most: int) -> Iterator[Example]:
    task = get_task(name)
    folder = Path()
    if isinstance(source, Source) and source.kind in LOCAL:
        folder = Path(source.path).parent
    for number, row in enumerate(rows(source, count), start=1):
        row = task.resolve_paths(row, folder)
        try:
            turns = task.turns(row)[: most or None]
            for place, prompt in enumerate(turns):
                if prompt:
                    known = task.reference(row), task.answer(row), task.group_name(row)
                    yield Example(prompt, *known, earlier=turns[:place])
        except RowError as error:
            raise UserError(
                f"{_name(source)} row {number} has {error}; it has the fields "
                f"{', '.join(map(str, row))}, and task {name!r} reads {task.reads}"
            ) from None


def _name(source: Rows) -> str:
    return f"source {source}" if isinstance(source, Source) else "source"
