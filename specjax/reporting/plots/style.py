"""The style of every plot: palette, fonts, sizes, and saving as PNG and PDF."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.reporting.colors import AMBER, BLUE, DARK, GREEN, PINK, SKY, VERMILION
from specjax.reporting.colors import GREY as GREY  # for plots, under `style.` as all others
from specjax.reporting.colors import TARGET as TARGET
from specjax.runtime.files import replacing

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

_COLORS = (BLUE, VERMILION, GREEN, PINK, AMBER, SKY, DARK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")

INCHES = 9.6
"""Width of every figure: 1152 pixels at `DPI`, so that a 1280 pixel screen shows it unscaled."""

DPI = 120
WHITE, GRID = "#ffffff", "#e3e3e3"
_LONGEST_NAME = 32

_STYLE: dict[RcKeyType, Any] = {
    "figure.facecolor": WHITE,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "axes.edgecolor": DARK,
    "axes.labelcolor": DARK,
    "text.color": DARK,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.markersize": 7.0,
    "pdf.fonttype": 42,  # text that journals can search and embed
    "text.parse_math": False,  # a strategy may have dollars in its name
}


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """The plot style, as a context manager or decorator."""
    with matplotlib.rc_context(_STYLE):
        yield


def figure(height: float, columns: int = 1, **settings: Any) -> tuple[Figure, Any]:
    """A figure of the common width, `height` inches high, and its axes in a row."""
    made = Figure(figsize=(INCHES, height), layout="constrained")
    return made, made.subplots(1, columns, **settings)


def save(made: Figure, folder: Path, name: str) -> None:
    """Writes `name`.png and `name`.pdf into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for ending in ("pdf", "png"):
        file = folder / f"{name}.{ending}"
        # Without a date the same results give the same file.
        metadata = {"CreationDate": None} if ending == "pdf" else None
        with replacing(file) as partial, use_style():
            made.savefig(partial, dpi=DPI, metadata=metadata)


def marks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Color, marker and label of every series; 56 distinct pairs.

    From all strategies of a run, so that each looks the same in every plot.
    """
    return {
        name: {
            "color": _COLORS[index % len(_COLORS)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "label": short(name),
        }
        for index, name in enumerate(names)
    }


def short(name: str) -> str:
    """Shortens a name to fit next to a plot."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def bar_height(bars: int) -> float:
    """Height (inches) of a figure with `count` horizontal bars."""
    return 0.34 * bars + 1.3


def name_bars(axes: Axes, names: list[str]) -> None:
    """Horizontal bars at 0, 1, ... from the top, with their names."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
