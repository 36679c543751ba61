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


def drawn(table: Table) -> Drawn:
    """The table in colours; long names wrap where the terminal is narrow."""
    made = Drawn(box=rich.box.SIMPLE_HEAD, header_style="bold")
    for index, title in enumerate(table.head):
        made.add_column(
            Text(title),
            justify="left" if index == 0 else "right",
            overflow="fold",
            no_wrap=index != 0,
        )
    for index, row in enumerate(table.rows):
        # Texts, as names may look like rich's markup.
        made.add_row(*map(Text, row), style=table.looks.get(index, ""))
    return made
