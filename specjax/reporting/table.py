"""The terminal table of a decode experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("ms/token", "ms_per_token", ".3f"),
    ("speedup", "speedup", ".2f"),
    ("predicted", "speedup_predicted", ".2f"),
    ("efficiency", "engine_efficiency", ".2f"),
    ("fixed ms", "fixed_ms", ".1f"),
    ("accepted", "acceptance_rate", ".3f"),
    ("tok/call", "tokens_per_target_call", ".2f"),
    ("identical", "identical_to_target", ".3f"),
    ("differ", "differing", "d"),
    ("near ties", "near_ties", "d"),
    ("tokens", "tokens", "d"),
)
"""Heading, field of a strategy in results.json, format."""


PREDICTED: tuple[tuple[str, str, str], ...] = (
    ("theorem 3.8", "theorem_3_8", ".2f"),
    ("calls alone", "calls_alone", ".2f"),
    ("with v", "with_v", ".2f"),
    ("priced", "priced", ""),
    ("measured", "measured", ".2f"),
    ("error %", "error_percent", "+.1f"),
)
"""Heading, field of a strategy's `predicted`, format."""

IMPROVEMENTS: tuple[tuple[str, str, str], ...] = (
    ("SWI", "standardized_walltime_improvement", ".2f"),
    ("SWI measured", "standardized_walltime_improvement_measured", ".2f"),
)
"""Heading, field of a strategy, format: tokens over the price of all calls."""

HANDOVERS: tuple[tuple[str, str, str], ...] = (
    ("large", "large_calls", "d"),
    ("small", "small_calls", "d"),
    ("unsure", "confidence_handovers", "d"),
    ("full", "window_handovers", "d"),
    ("ended", "unreviewed_ends", "d"),
    ("rollbacks", "rollbacks", "d"),
    ("dropped", "dropped", "d"),
    ("L/out %", "fallback_percent", ".2f"),
    ("rb/out %", "rollback_percent", ".2f"),
    ("L/S %", "fallback_per_small_percent", ".2f"),
    ("rb/S %", "rollback_per_small_percent", ".2f"),
    ("drop/S %", "dropped_per_small_percent", ".2f"),
)
"""Heading, field of a strategy's `handovers`, format."""

GROUPS: tuple[tuple[str, str, str], ...] = (
    ("examples", "examples", "d"),
    ("tokens", "tokens", "d"),
    ("ms/token", "ms_per_token", ".3f"),
    ("speedup", "speedup", ".2f"),
    ("accept rate", "accept_rate", ".3f"),
    ("tok/round", "tokens_per_round", ".2f"),
)
"""Heading, field of a group, format."""

SHARES: tuple[str, ...] = ("target", "drafter", "rest", "fixed")
"""Fields of a strategy's `time`, shown as percent of the total."""


def table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """Speed and quality, one line per strategy."""
    metrics = sorted({m for entry in strategies.values() for m in entry["quality"]})
    head = ["strategy", *(title for title, _, _ in COLUMNS), *metrics]
    rows = [
        [
            name,
            *(cell(entry[field], form) for _, field, form in COLUMNS),
            *(cell(entry["quality"].get(metric), ".2f") for metric in metrics),
        ]
        for name, entry in strategies.items()
    ]
    return align_columns(head, rows)


def predictions(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """Predicted against measured speedup of the decode loop, SWI, and where the time went."""
    titles = [title for title, _, _ in (*PREDICTED, *IMPROVEMENTS)]
    head = ["strategy", *titles, *(f"{share} %" for share in SHARES), "accepted, 95%"]
    rows = [
        [
            name,
            *(cell(entry["predicted"].get(field), form) for _, field, form in PREDICTED),
            *(cell(entry[field], form) for _, field, form in IMPROVEMENTS),
            *(cell(_percent(entry["time"], share), ".0f") for share in SHARES),
            _interval(entry["acceptance"]),
        ]
        for name, entry in strategies.items()
    ]
    return align_columns(head, rows)


def handover_table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """Calls of large and small models, rollbacks and dropped drafts.

    See docs/methods/bild.md, "Counters".
    """
    rows = [
        [name, *(cell(entry["handovers"][field], form) for _, field, form in HANDOVERS)]
        for name, entry in strategies.items()
    ]
    return align_columns(["strategy", *(title for title, _, _ in HANDOVERS)], rows)


def group_table(groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The figures of every strategy by group, group by group."""
    rows = [
        [name, strategy, *(cell(figures[name][field], form) for _, field, form in GROUPS)]
        for name in next(iter(groups.values()))
        for strategy, figures in groups.items()
    ]
    return align_columns(["group", "strategy", *(title for title, _, _ in GROUPS)], rows)


def _percent(time: Mapping[str, float | None], share: str) -> float | None:
    total, part = time["total"], time[share]
    return 100 * part / total if total and part is not None else None


def _interval(acceptance: Mapping[str, Any]) -> str:
    low, high = acceptance["low"], acceptance["high"]
    return "-" if low is None else f"{low:.3f} to {high:.3f}"


def align_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligns rows under their headings: the first column left, the others right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(_pad(i, cell, widths[i]) for i, cell in enumerate(row)) for row in rows]
    title = "  ".join(_pad(i, cell, widths[i]) for i, cell in enumerate(head))
    return "\n".join([title, "-" * len(title), *lines])


def _pad(column: int, cell: str, width: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def cell(value: Any, form: str) -> str:
    """A formatted value, a dash for none."""
    return "-" if value is None else format(value, form)


_ARM_COUNTS = ("texts", "rounds", "tokens", "drafted", "accepted")
ARM_HEAD = ("strategy", "arm", *_ARM_COUNTS, "accept rate")
"""Headings of `arm_rows`."""


def arm_rows(strategies: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The figures of all strategies that have arms, a row for each arm."""
    return [
        [
            strategy,
            arm,
            *(cell(figures[field], ",d") for field in _ARM_COUNTS),
            cell(figures["accept_rate"], ".3f"),
        ]
        for strategy, entry in strategies.items()
        for arm, figures in (entry.get("arms") or {}).items()
    ]


def arm_table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """`arm_rows` as text."""
    return align_columns(ARM_HEAD, arm_rows(strategies))
