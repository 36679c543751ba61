"""What a person reads on the terminal: one table, and the details that `--verbose` asks for."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator

import rich.box
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from specjax.reporting.summary import Table
from specjax.reporting.table import aligned

_VERBOSE = contextvars.ContextVar("verbose", default=False)


@contextlib.contextmanager
def verbosity(verbose: bool) -> Iterator[None]:
    """Whether `details` are printed inside."""
    token = _VERBOSE.set(verbose)
    try:
        yield
    finally:
        _VERBOSE.reset(token)


def details(text: str) -> None:
    """Prints what only `--verbose` shows, and an empty line."""
    if _VERBOSE.get():
        print(text, end="\n\n")


def show(table: Table) -> None:
    """Prints the table: drawn on a terminal, plain text in a file or a pipe."""
    if sys.stdout.isatty():
        Console(file=sys.stdout, highlight=False).print(drawn(table))
    else:
        print(aligned(table.head, table.rows))
    if table.note:
        print(table.note)


def drawn(table: Table) -> Drawn:
    """The table in colours; where the terminal is narrow, names and longer cells wrap."""
    made = Drawn(box=rich.box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for index, title in enumerate(table.head):
        figures = index > 0 and not any(" " in row[index] for row in table.rows)
        made.add_column(
            Text(title),
            justify="right" if index else "left",
            overflow="fold",
            no_wrap=figures,
        )
    for index, row in enumerate(table.rows):
        # Texts, as names may look like rich's markup.
        made.add_row(*map(Text, row), style=table.looks.get(index, ""))
    return made
