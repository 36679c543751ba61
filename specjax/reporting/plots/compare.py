"""Decode runs side by side: time and quality of every strategy, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.reporting.plots import style

_SPREAD = 0.5
"""Of a strategy's row, over which its runs are spread."""


@style.styled()
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
