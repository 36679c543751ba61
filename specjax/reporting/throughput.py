"""Table, files and report of a run in slots that are refilled: throughput next to latency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.reporting import page
from specjax.reporting.exports import CSV, describe_run, write_formatted
from specjax.reporting.page import Section
from specjax.reporting.report import PAGE
from specjax.reporting.summary import (
    BEST,
    LOSSY,
    NOTE,
    Strategies,
    Table,
    main_metric,
    outputs_words,
)
from specjax.reporting.table import cell
from specjax.runtime.files import write_csv, write_text

HEAD = (
    "tokens/s",
    "ratio",
    "occupancy",
    "before tail",
    "first token s",
    "95%",
    "last token s",
    "95%",
    "accepted",
    "tokens/call",
    "outputs",
)
"""Headings after the strategy and the metric."""

FIELDS = (
    "lossless",
    "baseline",
    "tokens",
    "seconds",
    "tokens_per_second",
    "ms_per_token",
    "speedup",
    "occupancy",
    "occupancy_before_tail",
    "resumed_rows",
    "acceptance_rate",
    "tokens_per_target_call",
    "identical_to_target",
    "differing",
)
"""Fields of a strategy in results.json that are columns of the CSV under the same names."""

TIMES = ("first_token_seconds", "last_token_seconds")
"""Fields whose median and 95th percentile are columns of their own."""

_ABOUT = (
    "Every strategy decoded all prompts in the same number of slots: a slot whose row has ended"
    " takes the next prompt. Tokens a second are those of a whole pass, from the first prompt that"
    " is read to the last output that is written; compilation and warm-up are not timed. Occupancy"
    " is the share of slots with an active row, of all rounds, and of those before the last prompt"
    " began. Times are from the reading of a prompt to its first and last token: median and 95th"
    " percentile. That of the first token is estimated from the rounds between two looks at the"
    " device."
)


def throughput_table(strategies: Strategies) -> Table:
    """A row for each strategy, the fastest first; the fastest lossless one is marked."""
    order = sorted(strategies, key=lambda name: -(strategies[name]["tokens_per_second"] or 0))
    metric = main_metric(strategies)
    best = next((name for name in order if strategies[name]["lossless"]), None)
    rows = [
        [name, *_figures(strategies[name], metric), outputs_words(strategies[name], name == best)]
        for name in order
    ]
    looks = {i: LOSSY for i, name in enumerate(order) if not strategies[name]["lossless"]}
    if best is not None:
        looks[order.index(best)] = BEST
    return Table(["strategy", *filter(None, [metric]), *HEAD], rows, looks, _note(strategies))


def _figures(entry: Mapping[str, Any], metric: str | None) -> list[str]:
    return [
        *([cell(entry["quality"].get(metric), ".2f")] if metric else []),
        cell(entry["tokens_per_second"], ",.0f"),
        cell(entry["speedup"], ".2f"),
        cell(entry["occupancy"], ".1%"),
        cell(entry["occupancy_before_tail"], ".1%"),
        *(cell(entry[time][part], ".3g") for time in TIMES for part in ("median", "p95")),
        cell(entry["acceptance_rate"], ".1%") if entry["acceptance"]["tested"] else "-",
        cell(entry["tokens_per_target_call"], ".2f"),
    ]


def _note(strategies: Strategies) -> str:
    """What the mark means, and which speeds leave out rows of an earlier process."""
    lossless = any(entry["lossless"] for entry in strategies.values())
    notes = [NOTE] if lossless else []
    for name, entry in strategies.items():
        if entry["resumed_rows"]:
            notes.append(
                f"{name} was resumed: its speed and times leave out {entry['resumed_rows']:,} rows"
                " that were decoded before"
            )
    return "; ".join(notes)


def write_tables(content: Mapping[str, Any], workdir: Path) -> None:
    """Writes results.csv, table.tex and table.md from the content of results.json."""
    data = content["data"]
    title = f"{data['name'] or 'decoding'}, {data['examples']} examples"
    write_csv(workdir / CSV, csv_rows(content))
    write_formatted(throughput_table(content["strategies"]), title, workdir)


def csv_rows(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per strategy; scores are columns under their names, in points of 100."""
    run = describe_run(content)
    return [
        {
            "strategy": name,
            **{field: entry[field] for field in FIELDS},
            **{f"{time}_{part}": entry[time][part] for time in TIMES for part in entry[time]},
            **entry["quality"],
            **run,
        }
        for name, entry in content["strategies"].items()
    ]


def write_report(content: Mapping[str, Any], workdir: Path) -> None:
    """Writes report.html next to results.json."""
    data, config, environment = content["data"], content["config"], content["environment"]
    where = f"{environment['devices']} x {environment['device']}"
    words = f"{data['examples']:,} examples in {config['batch_size']} slots, {config['dtype']},"
    table = throughput_table(content["strategies"])
    shown = page.table("Throughput of each strategy", table.head, table.rows)
    body = shown + page.paragraph(table.note, "note")
    lead = page.paragraph(_ABOUT) + page.paragraph(f"{words} on {where}.")
    title = f"Throughput: {data['name'] or 'decode experiment'}"
    sections = [Section("throughput", "Throughput", body)]
    write_text(workdir / PAGE, page.page(title, lead, sections))
