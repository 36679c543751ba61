"""Converts a figure to inline SVG with the page's colors and fonts."""

from __future__ import annotations

import html
import io
import re

import matplotlib
from matplotlib.figure import Figure

from specjax.reporting.plots import style

_COLORS = {style.DARK: "var(--ink)", style.WHITE: "var(--ground)", style.GRID: "var(--line)"}
_UNUSED = re.compile(
    r"<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id=\"[^\"]*\"|\n\s*", re.DOTALL
)


def inline(made: Figure, name: str, alt: str) -> str:
    """An `svg` element; `name` is unique in the page, `alt` describes the figure."""
    text = io.StringIO()
    # Text stays text: the page's fonts support all scripts. Salted ids differ between figures.
    with style.use_style(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        made.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawing = _UNUSED.sub("", text.getvalue())
    tag, content = re.findall(r"(<svg.*?)>(.*</svg>)", drawing, re.DOTALL)[0]
    view = re.findall(r'viewBox="[^"]*"', tag)[0]
    for color, variable in _COLORS.items():
        content = content.replace(f": {color}", f": {variable}")
    return f'<svg {view} role="img" aria-label="{html.escape(alt)}">{content}'
