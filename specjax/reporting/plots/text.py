"""The coloured text of Leviathan et al. (2023), Figure 1, as a figure for a paper."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specjax.reporting.plots import style
from specjax.reporting.token_html import Piece, pieces, writer_colours

_SIZE = 10.0  # points
_CELL = 0.602 * _SIZE  # DejaVu Sans Mono: every character is as wide
_LINE = 2.0 * _SIZE
_GAP = 1.5  # between tokens
_LEFT = 8.0
_WIDTH = 72 * style.INCHES
_COLUMNS = int((_WIDTH - 2 * _LEFT) / _CELL)


@style.styled()
def coloured_text(texts: Sequence[Mapping[str, Any]] | None) -> Figure | None:
    """Every token on its writer's colour, rejected ones struck through; None without texts."""
    if not texts:
        return None
    colours = writer_colours(texts)
    lines = [_legend(colours)]
    for text in texts:
        head = f"{text['strategy']}: {' '.join(text['source'].split())}"
        lines += [[], *([line] for line in textwrap.wrap(head, _COLUMNS))]
        lines += _wrapped(pieces(text["rounds"]))
    height = (len(lines) + 1) * _LINE
    figure = Figure(figsize=(style.INCHES, height / 72))
    axes = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
    for row, line in enumerate(lines):
        _draw(axes, line, (row + 1) * _LINE, colours)
    return figure


def _legend(colours: Mapping[str, str]) -> list[Piece]:
    return [Piece(name, name, True) for name in colours] + [Piece("rejected", "", False)]


def _wrapped(tokens: Sequence[Piece]) -> list[list[Piece]]:
    """Lines of tokens; one that is longer than a line is cut."""
    lines: list[list[Piece]] = [[]]
    used = 0.0
    for piece in tokens:
        width = _width(piece.text)
        if used + width > _WIDTH - 2 * _LEFT and lines[-1]:
            lines.append([])
            used = 0.0
        lines[-1].append(piece._replace(text=piece.text[:_COLUMNS]))
        used += width + _GAP
    return lines


def _width(text: str) -> float:
    """Points that a text takes; East Asian characters are twice as wide."""
    return _CELL * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _draw(
    axes: Axes, line: Sequence[Piece | str], bottom: float, colours: Mapping[str, str]
) -> None:
    """One line of plain text or of tokens; `bottom` is its baseline in points."""
    left = _LEFT
    mono = {"family": "DejaVu Sans Mono", "fontsize": _SIZE, "va": "baseline"}
    for piece in line:
        if isinstance(piece, str):
            axes.text(left, bottom, piece, color="#555555", **mono)
            continue
        width = _width(piece.text)
        box = (left, bottom - 1.1 * _SIZE), width, 1.5 * _SIZE
        colour = colours.get(piece.writer, style.GREY)
        axes.add_patch(Rectangle(*box, facecolor=colour, alpha=0.25, linewidth=0))
        axes.text(left, bottom, piece.text, **mono)
        if not piece.stands:
            level = bottom - 0.35 * _SIZE
            axes.plot([left, left + width], [level, level], color=style.DARK, linewidth=1)
        left += width + _GAP
