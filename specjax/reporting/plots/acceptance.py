"""Plots of acceptance: by position in the draft, along the text, and tokens per round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from specjax.reporting.plots import style
from specjax.reporting.plots.speed import Strategies


def _with(strategies: Strategies, field: str) -> dict[str, list[Mapping[str, Any]]]:
    """A list in `acceptance` by the names of those strategies that have it."""
    found = {name: (entry.get("acceptance") or {}) for name, entry in strategies.items()}
    return {name: each[field] for name, each in found.items() if each.get(field)}


@style.styled()
def by_position(strategies: Strategies) -> Figure | None:
    """Acceptance rate of each draft position with 95% intervals; None when none was measured."""
    found = _with(strategies, "by_position")
    if not found:
        return None
    figure, axes = style.figure(max(4.4, 0.24 * len(found) + 1.0))
    marks = style.marks(strategies)
    for index, (name, positions) in enumerate(found.items()):
        tested = [each for each in positions if each["tested"]]
        # Side by side: intervals at the same place would hide each other.
        shift = 0.5 * ((index + 0.5) / len(found) - 0.5)
        rates = [each["rate"] for each in tested]
        spread = [
            [each["rate"] - each["low"] for each in tested],
            [each["high"] - each["rate"] for each in tested],
        ]
        places = [each["position"] + shift for each in tested]
        axes.errorbar(places, rates, spread, capsize=3, linewidth=1.2, **marks[name])
    axes.set_ylim(0, 1.03)
    most = max(each["position"] for positions in found.values() for each in positions)
    axes.set_xticks(range(1, most + 1, 1 + most // 16))
    axes.set_xlabel("position in the draft (1 is the first drafted token)")
    axes.set_ylabel("acceptance rate (accepted / tested)")
    figure.legend(loc="outside right upper")
    return figure


@style.styled()
def along_text(strategies: Strategies) -> Figure | None:
    """Mean of sum min(p, q) by place in the output; None when none was measured."""
    found = _with(strategies, "along_text")
    if not found:
        return None
    figure, axes = style.figure(max(4.4, 0.24 * len(found) + 1.0))
    marks = style.marks(strategies)
    for name, bins in found.items():
        filled = [each for each in bins if each["overlap"] is not None]
        places = [(each["from"] + each["to"]) / 2 for each in filled]
        axes.plot(places, [each["overlap"] for each in filled], linewidth=1.2, **marks[name])
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.set_xlabel("place in the output (generated tokens)")
    axes.set_ylabel("overlap, mean of Σ min(p, q)")
    figure.legend(loc="outside right upper")
    return figure


@style.styled()
def tokens_per_round(strategies: Strategies) -> Figure | None:
    """Shares of rounds by how many tokens they gave, the mean beside; None when not measured."""
    counts = {
        name: {int(n): count for n, count in entry["rounds"]["tokens_per_round"].items()}
        for name, entry in strategies.items()
        if (entry.get("rounds") or {}).get("tokens_per_round")
    }
    counts = {name: each for name, each in counts.items() if sum(each.values())}
    if not counts:
        return None
    figure, axes = style.figure(style.bar_height(len(counts)))
    most = max(n for each in counts.values() for n in each)
    colours = matplotlib.colormaps["cividis"]
    left = [0.0] * len(counts)
    for tokens in range(1, most + 1):
        shares = [100 * each.get(tokens, 0) / sum(each.values()) for each in counts.values()]
        colour = colours((tokens - 1) / max(most - 1, 1))
        bars = {"color": colour, "edgecolor": "white", "linewidth": 0.5, "label": f"{tokens}"}
        axes.barh(range(len(counts)), shares, 0.66, left=left, **bars)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    for place, each in enumerate(counts.values()):
        mean = sum(n * count for n, count in each.items()) / sum(each.values())
        axes.text(101.5, place, f"mean {mean:.2f}", va="center")
    style.name_bars(axes, list(counts))
    axes.set_xlim(0, 115)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of rounds (%)")
    columns = 1 + (most - 1) // max(2 * len(counts), 6)
    figure.legend(loc="outside right upper", title="tokens\nper round", ncols=columns)
    return figure
