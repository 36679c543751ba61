"""Acceptance along a stream of texts, with drafters that learn and drafters that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from specjax.reporting.plots import style

_PANELS = (
    ("acceptance", "accepted of tested tokens"),
    ("tokens_per_target_call", "tokens per target call"),
)


@style.styled()
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
