"""A self-contained report.html, its plots also as PNG and PDF in `plots/`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from specjax.reporting import page
from specjax.reporting.page import Section
from specjax.reporting.plots import acceptance, operations, speed, style
from specjax.reporting.plots.text import coloured_text
from specjax.reporting.table import COLUMNS, HANDOVERS, IMPROVEMENTS, cell
from specjax.reporting.token_html import as_html
from specjax.writing import replacing

PLOTS = "plots"
"""Folder beside report.html."""

Results = Mapping[str, Any]
"""What results.json holds; fields that older runs lack leave their sections out."""


def write_report(results: Results, workdir: Path) -> None:
    """Writes report.html and its plots beside results.json."""
    sections = [section for section in _sections(results, workdir / PLOTS) if section.body]
    name = results["data"]["name"] or "Decode experiment"
    document = page.page(f"Decoding: {name}", _lead(results), sections)
    with replacing(workdir / "report.html") as partial:
        partial.write_text(document, "utf-8")


def _lead(results: Results) -> str:
    environment, config = results["environment"], results["config"]
    where = f"{environment['devices']} x {environment['device']} ({environment['platform']})"
    versions = environment.get("packages") or {}
    return page.paragraph(
        f"{results['data']['examples']} examples, batch size {config['batch_size']},"
        f" {config['dtype']}, on {where}, JAX {versions.get('jax', 'unknown')}. Speedups are"
        " against jitted autoregressive decoding of the same sampling settings; compilation and"
        " warm-up are not timed."
    )


def _sections(results: Results, folder: Path) -> Iterator[Section]:
    """Every section in the order of the page; without a body where nothing was measured."""
    strategies = results["strategies"]

    def plot(name: str, figure: Figure | None, alt: str, caption: str) -> str:
        return page.image(style.save(figure, folder, name), alt, caption) if figure else ""

    yield Section("speed", "Speed", _speed_table(strategies))
    yield Section(
        "quality",
        "Quality against latency",
        plot(
            "quality",
            speed.quality_against_latency(strategies),
            "Scatter plot: quality of every strategy against its milliseconds per token.",
            "Up and to the left is better. Lossless strategies keep the target's quality.",
        ),
    )
    yield Section(
        "prediction",
        "Predicted against measured",
        plot(
            "prediction",
            speed.predicted_against_measured(strategies),
            "Scatter plot: measured speedup of every strategy against the predicted one, with the"
            " diagonal and a band of 15% around it.",
            "Predictions are E[tokens per round] / (K c + v) from separately timed model calls,"
            " without the fixed cost per batch; Theorem 3.8 of Leviathan et al. takes v as 1.",
        )
        + _prediction_table(strategies)
        + _improvement_table(strategies),
    )
    yield Section(
        "acceptance",
        "Acceptance by draft position",
        plot(
            "acceptance",
            acceptance.by_position(strategies),
            "Acceptance rate of every draft position with error bars, one series per strategy.",
            "Accepted over tested drafts; bars are 95% Wilson intervals. A position is tested when"
            " all before it stood.",
        )
        + plot(
            "along_text",
            acceptance.along_text(strategies),
            "Overlap of target and drafter along the output, one line per strategy.",
            "How likely the target is to accept a draft, by place in the output.",
        )
        + _acceptance_table(strategies),
    )
    yield Section(
        "rounds",
        "Tokens per round",
        plot(
            "rounds",
            acceptance.tokens_per_round(strategies),
            "Stacked bars: shares of rounds that gave one token, two tokens and so on.",
            "A round is one target call: the accepted drafts and one token of the target.",
        )
        + _rounds_table(strategies),
    )
    yield Section("handovers", "Calls, fallbacks and rollbacks", _handovers_table(strategies))
    yield Section("tokens", "Who wrote each token", _coloured(results, folder))
    yield Section(
        "time",
        "Where the time goes",
        plot(
            "time",
            speed.time_bars(strategies),
            "Stacked bars: time per token in the drafter, the target, fixed costs and the rest,"
            " relative to autoregressive decoding.",
            "Target and drafter: calls times the measured cost of one. Fixed: prompt reading and"
            " dispatch. Rest: what no model call explains; below zero when calls cost less than"
            " measured alone. The mark is the measured total.",
        )
        + _time_table(strategies),
    )
    yield Section(
        "operations",
        "Arithmetic and memory operations",
        plot(
            "operations",
            operations.operation_bars(strategies),
            "Three panels of bars: arithmetic, memory operations and intensity of every strategy"
            " relative to autoregressive decoding, by model.",
            "Counted by the shapes of all model calls, drafts that were rejected included."
            " Memory operations are elements read or written.",
        )
        + _operations_table(strategies),
    )
    yield Section(
        "roofline",
        "Roofline",
        plot(
            "roofline",
            operations.roofline(results),
            "Measured one-token steps beside what memory bandwidth allows, and strategies under"
            " the bandwidth roof.",
            "A one-token step reads all weights and caches once; percent of what the measured"
            " copy bandwidth allows. Models that fit a processor's cache may exceed it.",
        )
        + _roofline_table(results),
    )
    yield Section("models", "Models", _models_table(results["models"]) + _costs_table(results))
    settings = json.dumps({k: results[k] for k in ("environment", "config")}, indent=2)
    yield Section("settings", "Settings", f"<pre tabindex='0'>{html.escape(settings)}</pre>")


def _speed_table(strategies: Mapping[str, Any]) -> str:
    metrics = sorted({m for entry in strategies.values() for m in entry.get("quality") or {}})
    rows = [
        [
            name,
            *(cell(entry.get(field), form) for _, field, form in COLUMNS),
            {True: "yes", False: "no"}.get(entry.get("lossless"), "-"),
            *(cell((entry.get("quality") or {}).get(metric), ".2f") for metric in metrics),
        ]
        for name, entry in strategies.items()
    ]
    head = ["strategy", *(title for title, _, _ in COLUMNS), "lossless", *metrics]
    return page.table("Speed and quality of every strategy", head, rows)


def _rows(entries: Mapping[str, Any], columns: list[tuple[str, str, str]], *path: str) -> list:
    """A row for each entry that has something at `path`; cells by (heading, field, format)."""
    found = []
    for name, entry in entries.items():
        for part in path:
            entry = (entry or {}).get(part)
        if entry:
            found.append([name, *(cell(entry.get(field), form) for _, field, form in columns)])
    return found


def _table(caption: str, columns: list[tuple[str, str, str]], rows: list[list[str]]) -> str:
    head = ["strategy", *(title for title, _, _ in columns)]
    return page.table(caption, head, rows) if rows else ""


def _prediction_table(strategies: Mapping[str, Any]) -> str:
    columns = [
        ("Theorem 3.8", "theorem_3_8", ".2f"),
        ("with v", "with_v", ".2f"),
        ("measured", "measured", ".2f"),
        ("error of with v, %", "error_percent", "+.1f"),
    ]
    return _table("Speedups", columns, _rows(strategies, columns, "predicted"))


def _improvement_table(strategies: Mapping[str, Any]) -> str:
    columns = list(IMPROVEMENTS)
    caption = "Standardised walltime improvement (SWI): tokens over the price of all calls"
    return _table(caption, columns, _rows(strategies, columns))


def _acceptance_table(strategies: Mapping[str, Any]) -> str:
    columns = [
        ("rate", "rate", ".3f"),
        ("95% from", "low", ".3f"),
        ("to", "high", ".3f"),
        ("tested", "tested", ",d"),
        ("analytic", "analytic", ".3f"),
    ]
    tested = {n: e for n, e in strategies.items() if (e.get("acceptance") or {}).get("tested")}
    return _table("Acceptance rates", columns, _rows(tested, columns, "acceptance"))


def _rounds_table(strategies: Mapping[str, Any]) -> str:
    found = {name: entry["rounds"] for name, entry in strategies.items() if entry.get("rounds")}
    reasons = list(
        dict.fromkeys(reason for each in found.values() for reason in each.get("stop_reasons", {}))
    )
    rows = [
        [
            name,
            cell(each.get("count"), ",d"),
            *(cell((each.get("stop_reasons") or {}).get(reason), ",d") for reason in reasons),
        ]
        for name, each in found.items()
    ]
    head = ["strategy", "rounds", *(f"stopped: {reason}" for reason in reasons)]
    return page.table("Rounds, and why drafts ended", head, rows) if rows else ""


def _handovers_table(strategies: Mapping[str, Any]) -> str:
    columns = list(HANDOVERS)
    caption = (
        "Calls of the large model (L) after an unsure or a full draft, and of the small one (S);"
        " texts that ended unreviewed; rollbacks (rb) and dropped tokens; shares of them"
    )
    return _table(caption, columns, _rows(strategies, columns, "handovers"))


def _coloured(results: Results, folder: Path) -> str:
    texts = results.get("texts")
    if not texts:
        return ""
    # The page has the text itself; the figure is for papers.
    style.save(coloured_text(texts), folder, "tokens")
    return as_html(texts)


def _time_table(strategies: Mapping[str, Any]) -> str:
    fields = ("total", "drafter", "target", "fixed", "rest")
    columns = [(f"{field}, s", field, ".3f") for field in fields]
    return _table("Seconds of the whole run", columns, _rows(strategies, columns, "time"))


def _operations_table(strategies: Mapping[str, Any]) -> str:
    columns = [
        ("FLOPs", "flops", ".3e"),
        ("memory operations", "memory_operations", ".3e"),
        ("intensity", "intensity", ".2f"),
    ]
    rows = _rows(strategies, columns, "operations", "total")
    return _table("Per generated token, all models together", columns, rows)


def _roofline_table(results: Results) -> str:
    columns = [
        ("bytes per step", "bytes_per_step", ",.0f"),
        ("bandwidth, bytes/s", "bandwidth", ".3e"),
        ("memory allows, ms", "bound_ms", ".3f"),
        ("measured, ms", "measured_ms", ".3f"),
        ("of what memory allows, %", "percent", ".1f"),
    ]
    rows = _rows(results.get("roofline") or {}, columns)
    head = ["model", *(title for title, _, _ in columns)]
    return page.table("One-token steps", head, rows) if rows else ""


def _models_table(models: Mapping[str, Any]) -> str:
    columns = [("parameters", "parameters", ",d"), ("step, ms", "step_ms", ".3f")]
    head = ["model", *(title for title, _, _ in columns)]
    return page.table("Sizes and one-token steps", head, _rows(models, columns))


def _costs_table(results: Results) -> str:
    """c of every model and v of every width that was timed."""
    found = [
        (sampling, name, each)
        for sampling, models in (results.get("costs") or {}).items()
        for name, each in models.items()
    ]
    widths = sorted({int(width) for *_, each in found for width in each.get("v") or {}})
    rows = [
        [
            sampling,
            name,
            cell(each.get("c"), ".3f"),
            *(cell((each.get("v") or {}).get(str(width)), ".2f") for width in widths),
        ]
        for sampling, name, each in found
    ]
    head = ["sampling", "model", "c", *(f"v of {width}" for width in widths)]
    caption = "Cost coefficient c (step over target step) and cost v of calls of several tokens"
    return page.table(caption, head, rows) if rows else ""
