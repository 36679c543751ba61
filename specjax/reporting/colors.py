"""The palette of plots, pages and notebooks; does not import matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

BLUE, VERMILION, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SKY, AMBER, GREY, DARK = "#56b4e9", "#e69f00", "#8c8c8c", "#1a1a1a"
"""The color-blind safe palette of Okabe and Ito, without yellow."""

TARGET = BLUE
"""The target's color; drafters have those of `DRAFTERS`."""

DRAFTERS = (GREEN, VERMILION, PINK, AMBER, SKY)


def choose_model_colors(names: Sequence[str]) -> dict[str, str]:
    """A color for every model or writer of tokens."""
    others = [name for name in names if name != "target"]
    colors = {name: DRAFTERS[index % len(DRAFTERS)] for index, name in enumerate(others)}
    return {"target": TARGET, **colors}
