"""`python -m specjax.reporting.paper RUN ... --convention=spec_bench`: the table of a paper.

Rows are strategies; columns are the categories of one run, or several runs, and all of it. The
figures are those of docs/reference/accepted_lengths.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from specjax.metrics.accepted_lengths import (
    PER_REQUEST,
    POOLED,
    WITH_PREFILL,
    WITHOUT_PREFILL,
    Figure,
)
from specjax.reporting.exports import latex, latex_text, markdown
from specjax.reporting.summary import Table
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path
from specjax.runtime.json_files import read_json

RESULTS = "results.json"
OVERALL = "overall"

LENGTH, SPEEDUP, VERIFY_RATE = FIGURES = ("length", "speedup", "verify_rate")
MARKDOWN, LATEX = FORMATS = ("markdown", "latex")

_MEANS = {
    POOLED: "all tokens over all rounds",
    PER_REQUEST: "mean over requests of tokens over rounds",
}
_PREFILLS = {
    WITHOUT_PREFILL: "without the prefill's token",
    WITH_PREFILL: "each prefill a round of one token",
}


@dataclasses.dataclass(frozen=True)
class Convention:
    """Which accepted length is meant, under the name that its publisher gives it."""

    name: str
    prefill: str
    mean: str

    @property
    def caption(self) -> str:
        """The name and what it means."""
        return f"{self.name}: {_MEANS[self.mean]}, {_PREFILLS[self.prefill]}"


CONVENTIONS = {
    "spec_bench": Convention("Mean accepted tokens (Spec-Bench)", WITHOUT_PREFILL, POOLED),
    "deepspec": Convention("Accepted length τ (DeepSpec)", WITHOUT_PREFILL, POOLED),
    "speed_bench": Convention("Acceptance length AL (SPEED-Bench)", WITH_PREFILL, PER_REQUEST),
    "pooled_with_prefill": Convention("Accepted length", WITH_PREFILL, POOLED),
    "per_request": Convention("Accepted length", WITHOUT_PREFILL, PER_REQUEST),
}
"""By the name of the flag: three as published, and the other two combinations."""

_CAPTIONS = {
    SPEEDUP: "Speedup (Spec-Bench): mean over requests of tokens per second, over the baseline's",
    VERIFY_RATE: "Verify rate (DeepSpec): all tokens over all drafted tokens and rounds",
}


@dataclasses.dataclass(frozen=True)
class Column:
    """Figures of the strategies over one category or one run; `specjax.metrics` computes them."""

    title: str
    figures: Mapping[str, Mapping[str, Any]]  # `request_figures` by strategy
    baselines: Mapping[str, str]


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    flags = _parser().parse_args(list(argv[1:]))
    try:
        columns = read_columns(flags.runs)
        table = make_table(columns, flags.figure, flags.convention, flags.intervals)
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    caption = make_caption(columns, flags.figure, flags.convention, flags.intervals)
    made = markdown(table, caption) if flags.format == MARKDOWN else latex_float(table, caption)
    print(made, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specjax.reporting.paper",
        description="Prints the table of a paper: strategies by categories or by runs.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="workdir of a finished decode run")
    parser.add_argument("--figure", choices=FIGURES, default=LENGTH, help="default: %(default)s")
    parser.add_argument(
        "--convention",
        choices=tuple(CONVENTIONS),
        default="spec_bench",
        help="of lengths: whose mean; default: %(default)s",
    )
    parser.add_argument("--intervals", action="store_true", help="adds half of each 95%% interval")
    parser.add_argument("--format", choices=FORMATS, default=MARKDOWN, help="default: %(default)s")
    return parser


def read_columns(names: Sequence[str]) -> list[Column]:
    """The columns of runs: the categories of one, or several runs, and the last for all.

    Raises:
      UserError: when a run cannot be read, has no `evaluation`, or is named twice.
    """
    folders = [os.path.normpath(expand_path(name)) for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(f"run {name!r} is named twice; each run must be another workdir")
    runs = [_read_run(name) for name in names]
    if len(runs) == 1:
        return _categories(runs[0])
    data = [run["data"]["name"] or OVERALL for run in runs]
    columns = [
        _column(run, title if data.count(title) == 1 else f"{title} ({os.path.basename(folder)})")
        for run, title, folder in zip(runs, data, folders, strict=True)
    ]
    return [*columns, combine(columns)]


def _read_run(name: str) -> dict[str, Any]:
    """The results of a run that has an `evaluation`."""
    file = expand_path(name) / RESULTS
    if not os.path.isfile(file):
        raise UserError(
            f"run {name!r} has no {RESULTS}; it must be a finished decode run's workdir"
        )
    content = read_json(file)
    if not content.get("evaluation"):
        raise UserError(
            f"run {name!r} has no evaluation in its {RESULTS}; it must be a decode run of this"
            " version"
        )
    return content


def _categories(run: Mapping[str, Any]) -> list[Column]:
    """The categories of a run in their order, and the whole run."""
    names = next(iter(run["evaluation"].values()))["categories"]
    whole = _column(run, OVERALL if names else run["data"]["name"] or OVERALL)
    return [*(_column(run, name, name) for name in names), whole]


def _column(run: Mapping[str, Any], title: str, category: str | None = None) -> Column:
    """One category of a run, or all of it."""
    evaluation = run["evaluation"].items()
    figures = {
        name: one["overall"] if category is None else one["categories"][category]
        for name, one in evaluation
    }
    return Column(title, figures, {name: run["strategies"][name]["baseline"] for name in figures})


def combine(columns: Sequence[Column]) -> Column:
    """Several runs as one, for the strategies that all of them have; without intervals."""
    names = [name for name in columns[0].figures if all(name in one.figures for one in columns)]
    figures = {}
    for name in names:
        own = [column.figures[name] for column in columns]
        base = [column.figures.get(column.baselines[name]) for column in columns]
        figures[name] = {
            **{field: sum(one[field] for one in own) for field in ("requests", "turns")},
            WITHOUT_PREFILL: _combined_lengths(own, WITHOUT_PREFILL),
            WITH_PREFILL: _combined_lengths(own, WITH_PREFILL),
            "verify_rate": _combined_verify_rate(own),
            "speedup": _combined_speedup(own, base),
        }
    return Column(OVERALL, figures, columns[0].baselines)


def _combined_lengths(figures: Sequence[Mapping[str, Any]], prefill: str) -> dict[str, Figure]:
    more = sum(one["turns"] for one in figures) * (prefill == WITH_PREFILL)
    tokens, rounds = (sum(one[field] for one in figures) + more for field in ("tokens", "rounds"))
    means = [(one["requests"], one[prefill][PER_REQUEST]["value"]) for one in figures]
    known = [(count, mean) for count, mean in means if mean is not None]
    total = sum(count * mean for count, mean in known)
    return {
        POOLED: _figure(tokens, rounds),
        PER_REQUEST: _figure(total, sum(count for count, _ in known)),
    }


def _combined_verify_rate(figures: Sequence[Mapping[str, Any]]) -> Figure:
    tokens, rounds, drafted = (
        sum(one[field] for one in figures) for field in ("tokens", "rounds", "drafted")
    )
    return _figure(tokens, drafted and drafted + rounds)


def _combined_speedup(
    own: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any] | None]
) -> Figure:
    speeds = [
        [None if one is None else one["tokens_per_second"] for one in side] for side in (own, base)
    ]
    if any(speed is None for side in speeds for speed in side):
        return _figure(0, 0)
    counts = [one["requests"] for one in own]
    above, below = (
        sum(count * (speed or 0.0) for count, speed in zip(counts, side, strict=True))
        for side in speeds
    )
    return _figure(above, below)


def _figure(above: float, below: float) -> Figure:
    return {"value": above / below if below else None, "low": None, "high": None}


def make_table(
    columns: Sequence[Column], figure: str, convention: str, intervals: bool = False
) -> Table:
    """Strategies by columns, in the order of the first run that has each."""
    names = dict.fromkeys(name for column in columns for name in column.figures)
    rows = [
        [
            name,
            *(_cell(column.figures.get(name), figure, convention, intervals) for column in columns),
        ]
        for name in names
    ]
    return Table(["strategy", *(column.title for column in columns)], rows)


def _cell(figures: Mapping[str, Any] | None, figure: str, convention: str, intervals: bool) -> str:
    if figures is None:
        return "-"
    chosen = CONVENTIONS[convention]
    found = figures[chosen.prefill][chosen.mean] if figure == LENGTH else figures[figure]
    if found["value"] is None:
        return "-"
    form = ".3f" if figure == VERIFY_RATE else ".2f"
    spread = intervals and found["low"] is not None
    half = f"±{(found['high'] - found['low']) / 2:{form}}" if spread else ""
    return f"{found['value']:{form}}{half}"


def make_caption(
    columns: Sequence[Column], figure: str, convention: str, intervals: bool = False
) -> str:
    """Describes the figures, their convention, and the number of requests."""
    what = CONVENTIONS[convention].caption if figure == LENGTH else _CAPTIONS[figure]
    one = next(iter(columns[-1].figures.values()), None) or next(iter(columns[0].figures.values()))
    turns = f" of {one['turns']} turns" if one["turns"] > one["requests"] else ""
    spread = "; ± half of the 95% interval over resampled requests" if intervals else ""
    return f"{what}; {one['requests']} requests{turns}{spread}."


def latex_float(table: Table, caption: str) -> str:
    """The tabular of `latex` in a table with its caption."""
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}"]
    return "\n".join([*lines, f"{latex(table, 'specjax.reporting.paper')}\\end{{table}}", ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
