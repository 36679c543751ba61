"""Quality against speed over all runs of a sweep, with the Pareto front drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from specjax.metrics.pareto import front
from specjax.reporting.plots import style

_LISTED = 20
"""Points of the front that the legend explains; the CSV has them all."""


@style.styled()
def quality_against_speed(
    speed: Sequence[float],
    quality: Sequence[float],
    series: Sequence[str],
    labels: Sequence[str],
    axis_labels: tuple[str, str],
) -> Figure:
    """One marker for each point by its series, the front as steps, its points numbered.

    The four sequences run over the points; `labels` say what a point of the front is.
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
        # Every other number below: neighbours on a flat front stay apart.
        offset = (0, 8) if number % 2 else (0, -15)
        axes.annotate(str(number), place, offset, textcoords="offset points", ha="center")
        axes.plot([], [], linestyle="", label=f"{number}: {style.short(labels[index])}")
    axes.margins(0.08)
    axes.set_xlabel(axis_labels[0])
    axes.set_ylabel(axis_labels[1])
    figure.legend(loc="outside right upper")
    return figure
