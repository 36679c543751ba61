"""Plots of arithmetic, memory traffic, and the bandwidth bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from specjax.reporting.colors import choose_model_colors
from specjax.reporting.plots import style
from specjax.reporting.plots.speed import Strategies

BASELINE = "autoregressive"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one element, by `dtype` of the config."""

_PANELS = (
    ("flops", "FLOPs per token"),
    ("memory_operations", "memory operations\nper token"),
    ("intensity", "intensity (FLOPs\nper memory operation)"),
)


@style.use_style()
def operation_bars(strategies: Strategies) -> Figure | None:
    """FLOPs, memory operations and their ratio relative to autoregressive decoding; or None.

    Kim et al. (2023), Figure 8; the first two by model.
    """
    counted = {
        name: entry["operations"] for name, entry in strategies.items() if _has_operations(entry)
    }
    if BASELINE not in counted:
        return None
    names = list(counted)
    models = list(dict.fromkeys(m for parts in counted.values() for m in parts if m != "total"))
    colors = choose_model_colors(models)
    figure, panels = style.figure(style.bar_height(len(names)) + 0.3, 3, sharey=True)
    figure.set_layout_engine("constrained", wspace=0.06)  # end labels of neighbors would touch
    for axes, (field, title) in zip(panels, _PANELS, strict=True):
        whole = counted[BASELINE]["total"][field]
        parts = ["total"] if field == "intensity" else models
        left = np.zeros(len(names))
        for part in parts:
            values = [(counted[name].get(part) or {}).get(field) or 0.0 for name in names]
            widths = np.asarray(values) / whole
            color = style.GREY if part == "total" else colors[part]
            label = "both" if part == "total" else style.short(part)
            axes.barh(range(len(names)), widths, 0.66, left=left, color=color, label=label)
            left += widths
        axes.axvline(1, color=style.DARK, linewidth=0.8)
        axes.set_xlabel(f"{title}\n(times autoregressive)")
    for axes in panels:
        style.name_bars(axes, names)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(len(labels), 1))
    return figure


def _has_operations(entry: Mapping[str, Any]) -> bool:
    """Whether a strategy has operations in total."""
    return bool(((entry.get("operations") or {}).get("total") or {}).get("flops"))


@style.use_style()
def roofline(results: Mapping[str, Any]) -> Figure | None:
    """Steps and strategies against the bandwidth bound; None when it was not measured.

    Left: a one-token step of every model over the time that reading its weights and caches takes.
    Right: arithmetic per second against arithmetic per byte; the line is bandwidth times intensity.
    """
    steps = {name: step for name, step in (results.get("roofline") or {}).items() if step}
    if not steps:
        return None
    counted = {n: entry for n, entry in results["strategies"].items() if _has_operations(entry)}
    size = BYTES.get(results["config"].get("dtype", ""))
    both = bool(counted and size)
    height = max(4.0, style.bar_height(len(steps)), 0.24 * len(counted) + 1.0)
    figure, panels = style.figure(height, 1 + both, squeeze=False)
    _steps(panels[0, 0], steps)
    if counted and size:
        bandwidth = next(iter(steps.values()))["bandwidth"]
        _intensities(panels[0, 1], counted, style.marks(results["strategies"]), size, bandwidth)
    figure.legend(loc="outside right upper")
    return figure


def _steps(axes: Axes, steps: Mapping[str, Mapping[str, float]]) -> None:
    """Bars of measured steps, and marks at their memory bounds."""
    places = range(len(steps))
    measured = [step["measured_ms"] for step in steps.values()]
    bounds = [step["bound_ms"] for step in steps.values()]
    axes.barh(places, measured, 0.5, color=style.SKY, label="measured step")
    axes.plot(bounds, places, "|", color=style.DARK, markersize=26, label="memory allows")
    for place, step in enumerate(steps.values()):
        end = max(step["measured_ms"], step["bound_ms"])
        axes.text(end, place, f"  {step['percent']:.0f}%", va="center")
    style.name_bars(axes, list(steps))
    axes.set_xlim(0, 1.3 * max(*measured, *bounds))
    axes.set_xlabel("one-token step (ms)")


def _intensities(
    axes: Axes,
    strategies: Strategies,
    marks: Mapping[str, Any],
    size: int,
    bandwidth: float,
) -> None:
    """Strategies on logarithmic axes under the roof of `bandwidth` bytes per second."""
    placed = {}
    for name, entry in strategies.items():
        total = entry["operations"]["total"]
        rate = total["flops"] / (entry["ms_per_token"] / 1e3)
        placed[name] = total["intensity"] / size, rate / 1e9
    intensities = [x for x, _ in placed.values()]
    roof = np.array([min(intensities) / 1.6, max(intensities) * 1.6])
    axes.plot(roof, bandwidth * roof / 1e9, color=style.DARK, linewidth=1.2, label="bandwidth roof")
    for name, place in placed.items():
        axes.plot(*place, linestyle="", **marks[name])
    axes.set(xscale="log", yscale="log", xlabel="intensity (FLOPs per byte)")
    axes.set_ylabel("arithmetic (GFLOP per second)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
