"""Pages that open from disk: the report of a run, and of runs that are compared."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from specjax.reporting import page
from specjax.reporting.answers import answers
from specjax.reporting.html_tables import Results
from specjax.reporting.page import Section
from specjax.reporting.sections import Plots, sections
from specjax.reporting.summary import Table
from specjax.runtime import processes
from specjax.runtime.files import write_text

PLOTS = "plots"
"""Folder next to report.html."""

PAGE = "report.html"
"""File in the workdir."""


def write_report(results: Results, workdir: Path) -> None:
    """Writes report.html and its plots next to results.json.

    Only the first process writes: drawing takes seconds.
    """
    if not processes.is_first():
        return
    name = results["data"]["name"] or "Decode experiment"
    parts = sections(results, workdir / PLOTS)
    lead = _setting(results) + "".join(page.answer(*answer) for answer in answers(results))
    document = page.page(f"Decoding: {name}", lead, parts)
    write_text(workdir / PAGE, document)


def _setting(results: Results) -> str:
    """Paragraphs about the data, the machine and the models."""
    environment, config = results["environment"], results["config"]
    kinds = dict.fromkeys((environment["device"], environment["platform"]))
    where = f"{environment['devices']} x {', '.join(kinds)}"
    versions = environment.get("packages") or {}
    words = (
        "A drafter guesses the next tokens; the target, the model whose text we want, checks them"
        " in one call. A strategy is one way to do so."
    )
    return page.paragraph(words) + page.paragraph(
        f"{results['data']['examples']} examples, batch size {config['batch_size']},"
        f" {config['dtype']}, on {where}, JAX {versions.get('jax', 'unknown')}. Speedups are"
        " against jitted autoregressive decoding of the same sampling settings; compilation and"
        " warm-up are not timed."
    )


_ALT = "Time and quality of every strategy of each run, with intervals."
_CAPTION = "A marker for each run; bars are 95% intervals. To the left is faster."


def write_comparison(
    table: Table, title: str, about: str, plot: tuple[str, Figure], workdir: Path
) -> None:
    """Writes report.html, and the plot, a name and a figure, in `plots/`.

    `about` is plain text, a paragraph for each line.
    """
    name, figure = plot
    drawn = Plots(workdir / PLOTS).render_figure(name, figure, _ALT, _CAPTION)
    shown = page.table("Strategies of each run", table.head, table.rows)
    lead = "".join(map(page.paragraph, about.splitlines()))
    sections = [Section("comparison", "Comparison", drawn + shown)]
    write_text(workdir / PAGE, page.page(title, lead, sections))
