"""Draws published.svg, the figure of the README, and speedup.svg from their numbers.

    python docs/figures/speedup.py

The background is transparent, and the grey of the text is read on white and on black. A test
compares the numbers with the tables of the lab book, and the figures with the numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt  # noqa: E402  the backend comes first

HERE = Path(__file__).parent
INK = "#808080"
FIGURES = ("published", "speedup")
COLORS = {"same": "#3f8fd2", "other": "#d98324", "rival": "#8c8c8c"}
MEANING = {
    "same": "the target's own text or distribution",
    "other": "the text may differ: change of BLEU",
    "rival": "transformers",
}
SAME_BYTES = {"svg.fonttype": "none", "svg.hashsalt": "speedup", "font.size": 11}


def words(bar: dict[str, Any]) -> str:
    """What stands behind a bar: its speedup, and the BLEU lost where text may differ."""
    speedup = f"{float(bar['speedup']):.2f} ×"
    if "bleu" not in bar:
        return speedup
    return f"{speedup}   {float(bar['bleu']) - float(bar['target']):+.2f} BLEU".replace("-", "−")


def draw(bars: list[dict[str, Any]], label: str) -> plt.Figure:
    """Horizontal bars, the last of the file on top, and what they are ratios to."""
    figure, axes = plt.subplots(figsize=(9, 3.9))
    for place, bar in enumerate(bars):
        speed = float(bar["speedup"])
        axes.barh(place, speed, color=COLORS[bar["text"]], height=0.68)
        axes.text(speed + 0.03, place, words(bar), va="center", color=INK)
    axes.axvline(1, color=INK, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(bars)), [bar["label"] for bar in bars])
    axes.set_xlim(0, 3.4)
    axes.set_xlabel(label, color=INK)
    axes.tick_params(colors=INK, length=0)
    axes.spines[:].set_visible(False)
    kinds = [kind for kind in COLORS if any(bar["text"] == kind for bar in bars)]
    marks = [plt.Rectangle((0, 0), 1, 1, color=COLORS[kind]) for kind in kinds]
    axes.legend(marks, map(MEANING.get, kinds), loc="lower right", frameon=False, labelcolor=INK)
    figure.tight_layout()
    return figure


def main() -> None:
    """Writes the figures beside their numbers."""
    for name in FIGURES:
        numbers = json.loads((HERE / f"{name}.json").read_text("utf-8"))
        with plt.rc_context(SAME_BYTES):
            draw(numbers["bars"], numbers["axis"]).savefig(
                HERE / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None}
            )


if __name__ == "__main__":
    main()
