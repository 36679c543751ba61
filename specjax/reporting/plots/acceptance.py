"""Plots of acceptance: by position in the draft, along the text, and tokens per round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from specjax.reporting.plots import style
from specjax.reporting.plots.speed import Strategies

_DARKEST = 0.25
"""Limit of the color scale: darker colors are invisible on a dark page."""


def _with(strategies: Strategies, field: str) -> dict[str, list[Mapping[str, Any]]]:
    """A field of `acceptance` by strategy, for strategies that have it."""
    figures = {name: (entry.get("acceptance") or {}) for name, entry in strategies.items()}
    return {name: entry[field] for name, entry in figures.items() if entry.get(field)}


@style.use_style()
def by_position(strategies: Strategies) -> Figure | None:
    """Acceptance rate of each draft position with 95% intervals; None when none was measured."""
    measured = _with(strategies, "by_position")
    if not measured:
        return None
    figure, axes = style.figure(max(4.4, 0.24 * len(measured) + 1.0))
    marks = style.marks(strategies)
    for index, (name, positions) in enumerate(measured.items()):
        tested = [position for position in positions if position["tested"]]
        # Side by side: intervals at the same place would hide each other.
        shift = 0.5 * ((index + 0.5) / len(measured) - 0.5)
        rates = [position["rate"] for position in tested]
        spread = [
            [position["rate"] - position["low"] for position in tested],
            [position["high"] - position["rate"] for position in tested],
        ]
        places = [position["position"] + shift for position in tested]
        axes.errorbar(places, rates, spread, capsize=3, linewidth=1.2, **marks[name])
    axes.set_ylim(0, 1.03)
    most = max(position["position"] for positions in measured.values() for position in positions)
    axes.set_xticks(range(1, most + 1, 1 + most // 16))
    axes.set_xlabel("position in the draft (1 is the first drafted token)")
    axes.set_ylabel("acceptance rate (accepted / tested)")
    figure.legend(loc="outside right upper")
    return figure


@style.use_style()
def along_text(strategies: Strategies) -> Figure | None:
    """Mean of sum min(p, q) by position in the output; None when none was measured."""
    measured = _with(strategies, "along_text")
    if not measured:
        return None
    figure, axes = style.figure(max(4.4, 0.24 * len(measured) + 1.0))
    marks = style.marks(strategies)
    for name, bins in measured.items():
        filled = [part for part in bins if part["overlap"] is not None]
        places = [(part["from"] + part["to"]) / 2 for part in filled]
        axes.plot(places, [part["overlap"] for part in filled], linewidth=1.2, **marks[name])
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.set_xlabel("position in the output (generated tokens)")
    axes.set_ylabel("overlap, mean of Σ min(p, q)")
    figure.legend(loc="outside right upper")
    return figure


@style.use_style()
def tokens_per_round(strategies: Strategies) -> Figure | None:
    """Shares of rounds by number of tokens, with their mean; None when not measured."""
    counts = {
        name: {int(n): count for n, count in entry["rounds"]["tokens_per_round"].items()}
        for name, entry in strategies.items()
        if (entry.get("rounds") or {}).get("tokens_per_round")
    }
    counts = {name: rounds for name, rounds in counts.items() if sum(rounds.values())}
    if not counts:
        return None
    figure, axes = style.figure(style.bar_height(len(counts)))
    most = max(n for rounds in counts.values() for n in rounds)
    colors = matplotlib.colormaps["cividis"]
    left = [0.0] * len(counts)
    for tokens in range(1, most + 1):
        shares = [100 * rounds.get(tokens, 0) / sum(rounds.values()) for rounds in counts.values()]
        color = colors(_DARKEST + (1 - _DARKEST) * (tokens - 1) / max(most - 1, 1))
        bars = {"color": color, "edgecolor": "white", "linewidth": 0.5, "label": f"{tokens}"}
        axes.barh(range(len(counts)), shares, 0.66, left=left, **bars)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    for place, rounds in enumerate(counts.values()):
        mean = sum(n * count for n, count in rounds.items()) / sum(rounds.values())
        axes.text(101.5, place, f"mean {mean:.2f}", va="center")
    style.name_bars(axes, list(counts))
    axes.set_xlim(0, 115)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of rounds (%)")
    columns = 1 + (most - 1) // max(2 * len(counts), 6)
    figure.legend(loc="outside right upper", title="tokens\nper round", ncols=columns)
    return figure
