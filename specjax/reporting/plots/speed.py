"""Plots of latency: against quality, against prediction, and by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from specjax.reporting.plots import style

Strategies = Mapping[str, Mapping[str, Any]]
"""`strategies` of results.json."""

BAND = 0.15
"""Tolerance of a prediction."""

PARTS = (
    ("drafter", style.GREEN),
    ("target", style.TARGET),
    ("fixed", style.AMBER),
    ("rest", style.GREY),
)
"""Fields of `time` in the order of the bars, and their colors."""


@style.use_style()
def quality_against_latency(strategies: Strategies) -> Figure | None:
    """Quality by the first metric against milliseconds per token; None without a metric."""
    metrics = [metric for entry in strategies.values() for metric in entry.get("quality") or {}]
    if not metrics:
        return None
    figure, axes = style.figure(max(4.4, 0.24 * len(strategies) + 1.0))
    marks = style.marks(strategies)
    for name, entry in strategies.items():
        axes.plot(entry["ms_per_token"], entry["quality"][metrics[0]], linestyle="", **marks[name])
    axes.set_xlim(left=0)
    axes.margins(0.08)
    axes.set_xlabel("latency (ms per token)")
    axes.set_ylabel(f"{metrics[0]} (points of 100)")
    figure.legend(loc="outside right upper")
    return figure


def predictions(entry: Mapping[str, Any]) -> dict[str, Any]:
    """`predicted` of a strategy; older results have two of its numbers elsewhere."""
    older = {"with_v": entry.get("speedup_predicted"), "measured": entry.get("speedup")}
    return {**older, **(entry.get("predicted") or {})}


@style.use_style()
def predicted_against_measured(strategies: Strategies) -> Figure | None:
    """Measured against predicted speedup; None when nothing was predicted.

    Filled markers count the cost v of verification, hollow ones are Theorem 3.8, where v is 1
    (Leviathan et al. 2023).
    """
    known = {name: predictions(entry) for name, entry in strategies.items()}
    known = {
        name: speedups
        for name, speedups in known.items()
        if speedups["with_v"] and speedups["measured"]
    }
    if not known:
        return None
    figure, axes = style.figure(max(5.2, 0.24 * len(known) + 1.4))
    marks = style.marks(strategies)
    for name, speedups in known.items():
        theorem, predicted, measured = (
            speedups.get("theorem_3_8"),
            speedups["with_v"],
            speedups["measured"],
        )
        if theorem:
            look = marks[name] | {"markerfacecolor": "white", "label": ""}
            axes.plot([theorem, predicted], [measured] * 2, linewidth=0.8, markevery=[0], **look)
        axes.plot(predicted, measured, linestyle="", **marks[name])
    right = 1.08 * max(
        max(speedups["with_v"], speedups.get("theorem_3_8") or 0) for speedups in known.values()
    )
    top = 1.15 * max(speedups["measured"] for speedups in known.values())
    line = [0, max(right, top)]
    axes.plot(line, line, color=style.DARK, linewidth=1, label="as predicted")
    edges = ([x * side for x in line] for side in (1 - BAND, 1 + BAND))
    axes.fill_between(line, *edges, color=style.SKY, alpha=0.25, label=f"within {BAND:.0%}")
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.set_xlabel("predicted speedup (times)\nfilled: with v, hollow: Theorem 3.8")
    axes.set_ylabel("measured speedup (times)")
    figure.legend(loc="outside right upper")
    return figure


@style.use_style()
def time_bars(strategies: Strategies) -> Figure | None:
    """Time per token by part relative to autoregressive decoding; None without times.

    Leviathan et al. (2023), Figure 5. Every strategy against its own baseline: `speedup` is too.
    """
    names = [name for name, entry in strategies.items() if entry.get("time")]
    if not names:
        return None
    figure, axes = style.figure(style.bar_height(len(names)))
    totals = [100 / strategies[name]["speedup"] for name in names]
    left = [0.0] * len(names)
    for part, color in PARTS:
        widths = []
        for name, total in zip(names, totals, strict=True):
            time = strategies[name]["time"]
            # Calls are priced separately: noise may make them exceed the total.
            widths.append(max(time.get(part) or 0.0, 0.0) / time["total"] * total)
        axes.barh(range(len(names)), widths, 0.66, left=left, color=color, label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.plot(totals, range(len(names)), "|", color=style.DARK, markersize=17, label="measured")
    axes.axvline(100, color=style.DARK, linewidth=0.8)
    style.name_bars(axes, names)
    axes.set_xlabel("time per token (% of autoregressive decoding)")
    figure.legend(loc="outside right upper")
    return figure
