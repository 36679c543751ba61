"""Plots of the other jobs: runs compared, engagement of the target, adaptation, Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.metrics.statistics import front
from specjax.reporting.plots import style

_SPREAD = 0.5
"""Height of a strategy's row that its runs share."""


@style.use_style()
def side_by_side(rows: Sequence[Mapping[str, Any]], metric: str | None) -> Figure:
    """A row for each strategy, a marker with its interval for each run; quality by `metric`."""
    names = list(dict.fromkeys(row["strategy"] for row in rows))
    runs = list(dict.fromkeys(row["run"] for row in rows))
    panels = [("ms_per_token", "time (ms per token)")]
    if metric:
        panels.append((metric, f"{metric} (points of 100)"))
    height = 0.2 * len(names) * (len(runs) + 1) + 0.24 * len(runs) + 1.2
    figure, axes = style.figure(max(height, 3.0), len(panels), squeeze=False)
    marks = style.marks(runs)
    for index, (field, label) in enumerate(panels):
        for run in runs:
            own = [row for row in rows if row["run"] == run]
            shift = _SPREAD * ((runs.index(run) + 0.5) / len(runs) - 0.5)
            places = [names.index(row["strategy"]) + shift for row in own]
            look = marks[run] if index == 0 else marks[run] | {"label": ""}
            _errors(axes[0, index], own, field, places, look)
        style.name_bars(axes[0, index], names if index == 0 else [""] * len(names))
        axes[0, index].set_xlabel(label)
    axes[0, 0].set_xlim(left=0)
    figure.legend(loc="outside upper center", ncols=min(len(runs), 3))
    return figure


def _errors(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    field: str,
    places: Sequence[float],
    look: Mapping[str, Any],
) -> None:
    """Markers with bars to the ends of their intervals, where they have one."""
    values = np.array([row[field] for row in rows])
    ends = [
        [row[field] if row[f"{field}_{end}"] is None else row[f"{field}_{end}"] for row in rows]
        for end in ("low", "high")
    ]
    # The mean need not lie inside a percentile interval.
    reach = np.maximum([values - ends[0], np.array(ends[1]) - values], 0)
    axes.errorbar(values, places, xerr=reach, linestyle="", linewidth=1.2, **look)


@style.use_style()
def quality_against_engagement(
    rows: Sequence[Mapping[str, Any]], target: Mapping[str, float]
) -> Figure | None:
    """A line for each drafter over its thresholds, by the first metric of `target`, the quality
    of the target alone; None without a metric.
    """
    if not target:
        return None
    metric = next(iter(target))
    figure, axes = style.figure(4.6)
    axes.axhline(target[metric], color=style.TARGET, linestyle="--", label="target alone")
    names = list(dict.fromkeys(row["model"] for row in rows))
    for name, look in style.marks(["", *names]).items():
        own = sorted((row["engaged_percent"], row[metric]) for row in rows if row["model"] == name)
        if own:
            axes.plot(*zip(*own, strict=True), linewidth=1.2, **look)
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.set_xlabel("tokens written by the target (%)")
    axes.set_ylabel(f"{metric} (points of 100)")
    figure.legend(loc="outside right upper")
    return figure


_PANELS = (
    ("acceptance", "accepted of tested tokens"),
    ("tokens_per_target_call", "tokens per target call"),
)


@style.use_style()
def stream(strategies: Mapping[str, Mapping[str, Any]], borders: Sequence[int]) -> Figure:
    """Figures of every block of texts by strategy; lines where another source begins."""
    figure, panels = style.figure(4.6, columns=2)
    for axes, (field, label) in zip(panels, _PANELS, strict=True):
        for name, look in style.marks(strategies).items():
            blocks = strategies[name]["blocks"]
            middles = [block["from"] + block["texts"] / 2 for block in blocks]
            axes.plot(middles, [block[field] for block in blocks], linewidth=1.2, **look)
        for border in borders:
            axes.axvline(border, linestyle="--", color=style.GREY, linewidth=1.2)
        axes.set_xlabel("texts")
        axes.set_ylabel(label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


_LISTED = 20
"""Most points of the front in the legend; the CSV has all."""


@style.use_style()
def quality_against_speed(
    speed: Sequence[float],
    quality: Sequence[float],
    series: Sequence[str],
    labels: Sequence[str],
    axis_labels: tuple[str, str],
) -> Figure:
    """A marker for each point by series; the front as steps with numbered points.

    The four sequences run over the points; `labels` describe the points of the front.
    """
    x, y = np.asarray(speed, np.float64), np.asarray(quality, np.float64)
    on = np.flatnonzero(front(x, y))
    on = on[np.argsort(x[on], kind="stable")]
    names = list(dict.fromkeys(series))
    figure, axes = style.figure(max(5.0, 0.22 * (len(names) + min(len(on), _LISTED)) + 1.2))
    for name, look in style.marks(names).items():
        of = np.array([one == name for one in series])
        axes.plot(x[of], y[of], linestyle="", alpha=0.75, **look)
    # A speed between two points is reached by the faster one, at its quality.
    axes.step(x[on], y[on], where="pre", color=style.DARK, linewidth=1, label="front")
    for number, index in enumerate(map(int, on[:_LISTED]), start=1):
        place = x[index], y[index]
        # Every other number below: neighbors on a flat front stay apart.
        offset = (0, 8) if number % 2 else (0, -15)
        axes.annotate(str(number), place, offset, textcoords="offset points", ha="center")
        axes.plot([], [], linestyle="", label=f"{number}: {style.short(labels[index])}")
    axes.margins(0.08)
    axes.set_xlabel(axis_labels[0])
    axes.set_ylabel(axis_labels[1])
    figure.legend(loc="outside right upper")
    return figure
