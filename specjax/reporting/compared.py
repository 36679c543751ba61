"""The page of runs that are compared: one plot and one table with intervals."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from specjax.reporting import page
from specjax.reporting.page import Section
from specjax.reporting.report import PAGE, PLOTS
from specjax.reporting.sections import Plots
from specjax.reporting.summary import Table
from specjax.writing import write_text

_ALT = "Time and quality of every strategy of each run, with intervals."
_CAPTION = "A marker for each run; bars are 95% intervals. To the left is faster."


def write_comparison(
    table: Table, title: str, about: str, plot: tuple[str, Figure], workdir: Path
) -> None:
    """Writes report.html, and the plot, a name and a figure, in `plots/`.

    `about` is plain text, a paragraph for each line.
    """
    name, figure = plot
    drawn = Plots(workdir / PLOTS).shown(name, figure, _ALT, _CAPTION)
    shown = page.table("Strategies of each run", table.head, table.rows)
    lead = "".join(map(page.paragraph, about.splitlines()))
    sections = [Section("comparison", "Comparison", drawn + shown)]
    write_text(workdir / PAGE, page.page(title, lead, sections))
