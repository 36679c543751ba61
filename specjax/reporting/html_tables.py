"""The tables of a report, from the content of results.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.metrics.accepted_lengths import (
    PER_REQUEST,
    POOLED,
    WITH_PREFILL,
    WITHOUT_PREFILL,
)
from specjax.reporting import page
from specjax.reporting.summary import BEST, summary
from specjax.reporting.table import (
    ARM_HEAD,
    COLUMNS,
    GROUPS,
    HANDOVERS,
    IMPROVEMENTS,
    arm_rows,
    cell,
)

Results = Mapping[str, Any]
"""The content of results.json; sections of missing fields (older runs) are left out."""


def summary_table(strategies: Mapping[str, Any]) -> str:
    """The one table that the terminal shows, the fastest strategy first."""
    made = summary(strategies)
    best = {index for index, look in made.looks.items() if look == BEST}
    shown = page.table("Strategies, the fastest first", made.head, made.rows, best)
    return shown + (page.paragraph(f"{made.note}.", "note") if made.note else "")


def speed_table(strategies: Mapping[str, Any]) -> str:
    """Times, speedups and quality of every strategy."""
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
    """A row for each entry with a value at `path`; cells by (heading, field, format)."""
    rows = []
    for name, entry in entries.items():
        for part in path:
            entry = (entry or {}).get(part)
        if entry:
            rows.append([name, *(cell(entry.get(field), form) for _, field, form in columns)])
    return rows


def _table(caption: str, columns: list[tuple[str, str, str]], rows: list[list[str]]) -> str:
    head = ["strategy", *(title for title, _, _ in columns)]
    return page.table(caption, head, rows) if rows else ""


def prediction_table(strategies: Mapping[str, Any]) -> str:
    """Predicted and measured speedups, and how rounds were priced."""
    columns = [
        ("Theorem 3.8", "theorem_3_8", ".2f"),
        ("calls timed alone", "calls_alone", ".2f"),
        ("with v", "with_v", ".2f"),
        ("rounds priced", "priced", ""),
        ("measured", "measured", ".2f"),
        ("error of with v, %", "error_percent", "+.1f"),
    ]
    return _table("Speedups", columns, _rows(strategies, columns, "predicted"))


def improvement_table(strategies: Mapping[str, Any]) -> str:
    """Standardized walltime improvements."""
    columns = list(IMPROVEMENTS)
    caption = "Standardized walltime improvement (SWI): tokens over the price of all calls"
    return _table(caption, columns, _rows(strategies, columns))


def acceptance_table(strategies: Mapping[str, Any]) -> str:
    """Acceptance rates with their intervals, where drafts were tested."""
    columns = [
        ("rate", "rate", ".3f"),
        ("95% from", "low", ".3f"),
        ("to", "high", ".3f"),
        ("tested", "tested", ",d"),
        ("analytic", "analytic", ".3f"),
    ]
    tested = {n: e for n, e in strategies.items() if (e.get("acceptance") or {}).get("tested")}
    return _table("Acceptance rates", columns, _rows(tested, columns, "acceptance"))


def rounds_table(strategies: Mapping[str, Any]) -> str:
    """Rounds of every strategy, by why their drafts ended."""
    figures = {name: entry["rounds"] for name, entry in strategies.items() if entry.get("rounds")}
    stops = {name: rounds.get("stop_reasons") or {} for name, rounds in figures.items()}
    reasons = list(dict.fromkeys(reason for counts in stops.values() for reason in counts))
    rows = [
        [
            name,
            cell(rounds.get("count"), ",d"),
            *(cell(stops[name].get(reason), ",d") for reason in reasons),
        ]
        for name, rounds in figures.items()
    ]
    head = ["strategy", "rounds", *(f"stopped: {reason}" for reason in reasons)]
    return page.table("Rounds, and why drafts ended", head, rows) if rows else ""


def handovers_table(strategies: Mapping[str, Any]) -> str:
    """Handovers between small and large models."""
    columns = list(HANDOVERS)
    caption = (
        "Calls of the large model (L) after an unsure or a full draft, and of the small one (S);"
        " texts that ended unreviewed; rollbacks (rb) and dropped tokens; shares of them"
    )
    return _table(caption, columns, _rows(strategies, columns, "handovers"))


def arms_table(strategies: Mapping[str, Any]) -> str:
    """Figures of the arms of strategies that choose among them."""
    rows = arm_rows(strategies)
    caption = "Texts that began with each arm, its rounds, and their tokens"
    return page.table(caption, ARM_HEAD, rows) if rows else ""


def groups_table(groups: Mapping[str, Any]) -> str:
    """Figures of every strategy by group of examples."""
    names = next(iter(groups.values()), {})
    rows = [
        [name, strategy, *(cell(figures[name][field], form) for _, field, form in GROUPS)]
        for name in names
        for strategy, figures in groups.items()
    ]
    head = ["group", "strategy", *(title for title, _, _ in GROUPS)]
    return page.table("Figures by group of examples", head, rows) if rows else ""


def accepted_lengths_table(evaluation: Mapping[str, Any]) -> str:
    """Accepted lengths over requests with their intervals, by category where there are some."""
    means = (POOLED, PER_REQUEST)
    rows = [
        [
            name,
            category,
            *(cell(figures[count], ",d") for count in ("requests", "rounds", "tokens")),
            *(_with_interval(figures[WITHOUT_PREFILL][mean]) for mean in means),
            *(_with_interval(figures[WITH_PREFILL][mean]) for mean in means),
            _with_interval(figures["verify_rate"]),
        ]
        for name, entry in evaluation.items()
        for category, figures in {"all": entry["overall"], **entry["categories"]}.items()
    ]
    head = [
        *("strategy", "category", "requests", "rounds", "tokens", "pooled", "per request"),
        *("pooled, with prefill", "per request, with prefill", "verify rate"),
    ]
    return page.table("Tokens of a target call, and 95% of samples", head, rows) if rows else ""


def _with_interval(figure: Mapping[str, float | None]) -> str:
    value = cell(figure["value"], ".3f")
    low, high = figure["low"], figure["high"]
    return value if low is None or high is None else f"{value} [{low:.3f}, {high:.3f}]"


def time_table(strategies: Mapping[str, Any]) -> str:
    """Seconds of a run by part."""
    fields = ("total", "drafter", "target", "fixed", "rest")
    columns = [(f"{field}, s", field, ".3f") for field in fields]
    return _table("Seconds of the whole run", columns, _rows(strategies, columns, "time"))


def operations_table(strategies: Mapping[str, Any]) -> str:
    """Arithmetic and memory operations per token."""
    columns = [
        ("FLOPs", "flops", ".3e"),
        ("memory operations", "memory_operations", ".3e"),
        ("intensity", "intensity", ".2f"),
    ]
    rows = _rows(strategies, columns, "operations", "total")
    return _table("Per generated token, all models together", columns, rows)


def roofline_table(results: Results) -> str:
    """One-token steps compared with the memory bandwidth bound."""
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


def models_table(models: Mapping[str, Any]) -> str:
    """Sizes of the models."""
    columns = [("parameters", "parameters", ",d"), ("step, ms", "step_ms", ".3f")]
    head = ["model", *(title for title, _, _ in columns)]
    return page.table("Sizes and one-token steps", head, _rows(models, columns))


def costs_table(results: Results) -> str:
    """c of every model and v of every width that was timed."""
    timed = [
        (sampling, name, costs)
        for sampling, models in (results.get("costs") or {}).items()
        for name, costs in models.items()
    ]
    widths = sorted({int(width) for *_, costs in timed for width in costs.get("v") or {}})
    rows = [
        [
            sampling,
            name,
            cell(costs.get("c"), ".3f"),
            *(cell((costs.get("v") or {}).get(str(width)), ".2f") for width in widths),
        ]
        for sampling, name, costs in timed
    ]
    head = ["sampling", "model", "c", *(f"v of {width}" for width in widths)]
    caption = "Cost coefficient c (step over target step) and cost v of calls of several tokens"
    return page.table(caption, head, rows) if rows else ""
