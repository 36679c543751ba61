"""A self-contained report.html, its plots also as PNG and PDF in `plots/`."""

from __future__ import annotations

from pathlib import Path

from specjax import hosts
from specjax.reporting import page
from specjax.reporting.answers import answers
from specjax.reporting.html_tables import Results
from specjax.reporting.sections import sections
from specjax.writing import write_text

PLOTS = "plots"
"""Folder beside report.html."""

PAGE = "report.html"
"""In the workdir."""


def write_report(results: Results, workdir: Path) -> None:
    """Writes report.html and its plots beside results.json; of several processes the first one.

    Drawing takes seconds, and what others write goes nowhere.
    """
    if not hosts.is_first():
        return
    name = results["data"]["name"] or "Decode experiment"
    parts = sections(results, workdir / PLOTS)
    lead = _setting(results) + "".join(page.answer(*answer) for answer in answers(results))
    document = page.page(f"Decoding: {name}", lead, parts)
    write_text(workdir / PAGE, document)


def _setting(results: Results) -> str:
    """What was run where."""
    environment, config = results["environment"], results["config"]
    kinds = dict.fromkeys((environment["device"], environment["platform"]))
    where = f"{environment['devices']} x {', '.join(kinds)}"
    versions = environment.get("packages") or {}
    words = (
        "A drafter guesses the next tokens; the target, the model whose text is wanted, checks them"
        " in one call. A strategy is one way to do so."
    )
    return page.paragraph(words) + page.paragraph(
        f"{results['data']['examples']} examples, batch size {config['batch_size']},"
        f" {config['dtype']}, on {where}, JAX {versions.get('jax', 'unknown')}. Speedups are"
        " against jitted autoregressive decoding of the same sampling settings; compilation and"
        " warm-up are not timed."
    )
