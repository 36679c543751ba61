"""Quality against how often the target steps in: Kim et al. (2023), Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from specjax.reporting.plots import style


@style.styled()
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
