"""The summary table of a decode run: quality, speed and the best strategy."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from specjax.reporting.table import align_columns, cell

Strategies = Mapping[str, Mapping[str, Any]]
"""`strategies` of results.json."""

BEST, LOSSY = "bold green", "yellow"
"""Styles of rows on a terminal with colors."""

MARK = "*"
NOTE = f"{MARK} the fastest lossless strategy"

_OUTPUTS = {True: "lossless", False: "lossy"}


@dataclasses.dataclass(frozen=True)
class Table:
    """Texts in rows under their headings; the first cell of a row names it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    looks: Mapping[int, str] = dataclasses.field(default_factory=dict)  # of rows, for rich
    note: str = ""  # below the table


def summary(strategies: Strategies) -> Table:
    """A row for each strategy, the fastest first; the fastest lossless one is marked."""
    order = sorted(strategies, key=lambda name: strategies[name]["ms_per_token"])
    metric = main_metric(strategies)
    best = fastest_lossless(strategies)
    head = ["strategy", *filter(None, [metric]), "ms/token", "speedup", "accepted", "tokens/call"]
    rows = [
        [name, *_figures(strategies[name], metric), outputs_words(strategies[name], name == best)]
        for name in order
    ]
    looks = {i: LOSSY for i, name in enumerate(order) if not strategies[name]["lossless"]}
    if best is not None:
        looks[order.index(best)] = BEST
    return Table([*head, "outputs"], rows, looks, NOTE if best else "")


def main_metric(strategies: Strategies) -> str | None:
    """The score that measures quality: the metric's first; None without a metric."""
    return next((name for entry in strategies.values() for name in entry["quality"]), None)


def fastest_lossless(strategies: Strategies) -> str | None:
    """Name of the lossless strategy with the least time per token."""
    lossless = [name for name, entry in strategies.items() if entry["lossless"]]
    return min(lossless, key=lambda name: strategies[name]["ms_per_token"], default=None)


def speedup_words(entry: Mapping[str, Any]) -> str:
    """The speedup, with half of its 95% interval if there were enough examples."""
    low, high = entry.get("speedup_low"), entry.get("speedup_high")
    spread = "" if low is None else f"±{(high - low) / 2:.2f}"
    return f"{entry['speedup']:.2f}{spread}"


def _figures(entry: Mapping[str, Any], metric: str | None) -> list[str]:
    tested = (entry.get("acceptance") or {}).get("tested")
    return [
        *([cell(entry["quality"].get(metric), ".2f")] if metric else []),
        cell(entry["ms_per_token"], ".3f"),
        speedup_words(entry),
        cell(entry["acceptance_rate"], ".1%") if tested else "-",
        cell(entry["tokens_per_target_call"], ".2f"),
    ]


def outputs_words(entry: Mapping[str, Any], best: bool) -> str:
    """Whether outputs are those of the target, with a mark for the best strategy."""
    return _OUTPUTS[entry["lossless"]] + MARK * best


_VERBOSE = contextvars.ContextVar("verbose", default=False)


@contextlib.contextmanager
def verbosity(verbose: bool) -> Iterator[None]:
    """Context manager that enables or disables `details`."""
    token = _VERBOSE.set(verbose)
    try:
        yield
    finally:
        _VERBOSE.reset(token)


def details(text: str) -> None:
    """Prints text only with `--verbose`, and an empty line."""
    if _VERBOSE.get():
        print(text, end="\n\n")


def show(table: Table) -> None:
    """Prints the table: drawn on a terminal, plain text in a file or a pipe."""
    if sys.stdout.isatty():
        Console(file=sys.stdout, highlight=False).print(draw_table(table))
    else:
        print(align_columns(table.head, table.rows))
    if table.note:
        print(table.note)


def draw_table(table: Table) -> Drawn:
    """The table in colors; on a narrow terminal names and long cells wrap."""
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
