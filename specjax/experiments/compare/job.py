"""The compare experiment: finished decode runs side by side, with 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from specjax.experiments.compare.figures import SEEDS, Row, rows
from specjax.experiments.compare.runs import Run, read_runs, same_but_for_seeds
from specjax.metrics.metric import get_metric
from specjax.reporting import summary
from specjax.reporting.exports import write_formatted
from specjax.reporting.plots.jobs import side_by_side
from specjax.reporting.report import PAGE, write_comparison
from specjax.reporting.summary import Table
from specjax.reporting.table import cell
from specjax.runtime.files import write_csv

TABLE, PLOT = "compare.csv", "compare"
"""Files in the workdir and in its folder of plots."""


def run(config: ConfigDict, workdir: Path) -> list[Row]:
    """Compares the runs; writes tables (CSV, LaTeX, Markdown) and a page; returns the rows.

    Raises:
      UserError: when the runs cannot be compared.
    """
    groups = groups_of(config)
    compared = rows(groups, config.seed)
    workdir.mkdir(parents=True, exist_ok=True)
    write_csv(workdir / TABLE, compared)
    metric = next(iter(get_metric(groups[0][0].metric).scores), None)
    shown, about = table(compared, metric), words(groups)
    title = f"comparison of {', '.join(group[0].name for group in groups)}"
    write_formatted(shown, title, workdir)
    plot = PLOT, side_by_side(compared, metric)
    write_comparison(shown, title[0].upper() + title[1:], about, plot, workdir)
    summary.show(shown)
    print(about)
    print(f"results in {workdir}, the page in {workdir / PAGE}")
    return compared


def plan(config: ConfigDict) -> None:
    """Prints what would be compared.

    Raises:
      UserError: when the runs cannot be compared.
    """
    print(words(groups_of(config)))


def groups_of(config: ConfigDict) -> list[list[Run]]:
    """Groups of runs that differ only in their seed."""
    return same_but_for_seeds(read_runs(config.runs))


def table(compared: Sequence[Row], metric: str | None) -> Table:
    """Table of the rows for the terminal; differences are relative to the first run."""
    columns = [("ms/token", "ms_per_token", ".3f"), ("speed over first", "speed_ratio", ".3f")]
    if metric:
        columns += [(metric, metric, ".2f"), ("difference", f"{metric}_difference", "+.2f")]
    head = ["strategy", "run", *(title for title, _, _ in columns), "outputs"]
    lines = [
        [
            row["strategy"],
            row["run"],
            *(estimate(row, field, form) for _, field, form in columns),
            "lossless" if row["lossless"] else "lossy",
        ]
        for row in compared
    ]
    return Table(head, lines)


def estimate(row: Row, field: str, form: str) -> str:
    """A figure and its interval, as `1.02 (0.99 to 1.05)`."""
    value, low, high = (row.get(f"{field}{end}") for end in ("", "_low", "_high"))
    spread = "" if low is None else f" ({format(low, form)} to {format(high, form)})"
    return cell(value, form) + spread


def words(groups: Sequence[Sequence[Run]]) -> str:
    """Lines that describe the compared runs and their intervals."""
    runs = [run for group in groups for run in group]
    devices = dict.fromkeys(run.device for run in runs)
    lines = [f"{len(runs)} runs of the same {len(runs[0].examples)} examples; 95% intervals"]
    for group in groups:
        if len(group) > 1:
            names = ", ".join(run.name for run in group)
            lines.append(f"{group[0].name}: mean and interval over {SEEDS} of {names}")
    if len(devices) > 1:
        lines.append(f"times are of different devices: {', '.join(devices)}")
    return "\n".join(lines)
