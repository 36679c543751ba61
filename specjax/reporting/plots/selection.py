"""Choosing a drafter: the learning curve of a policy, and its choices by the weight of alignment.

Context-aware assistant selection, docs/methods/selection.md, "Experiments", 2 and 3. Lines are
means over seeds, bands reach from the lowest to the highest seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from specjax.reporting.plots import style

LABELS = {"reward": "expected reward", "speedup": "speedup over the target alone"}
_WAYS = {"policy_greedy": "policy, greedy", "policy_dynamic": "policy, drawn"}
_ORACLE, _RANDOM = "oracle", "random"


@style.use_style()
def learning_curve(
    rows: Sequence[Mapping[str, Any]], levels: Mapping[str, float], field: str
) -> Figure:
    """`field` (reward or speedup) of policies by training queries, with other choices.

    `rows` have `queries` and `<way>_<field>`; `levels` are the values of the oracle, chance and
    every single arm.
    """
    figure, axes = style.figure(4.6)
    for way, look in style.marks(_WAYS).items():
        _line(axes, rows, "queries", f"{way}_{field}", look | {"label": _WAYS[way]})
    singles = {name: value for name, value in levels.items() if name not in (_ORACLE, _RANDOM)}
    top = max(singles, key=singles.__getitem__)
    for name, label, dash, color in (
        (_ORACLE, "best choice for each query", "--", style.DARK),
        (top, f"always {style.short(top)}, the best single arm", "-.", style.GREY),
        (_RANDOM, "chance", ":", style.GREY),
    ):
        axes.axhline(levels[name], linestyle=dash, color=color, linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("training queries")
    axes.set_ylabel(LABELS[field])
    figure.legend(loc="outside right upper")
    return figure


@style.use_style()
def choices_by_weight(rows: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> Figure:
    """Shares of the arms, and agreement or measured speedup, by `1 - align_weight`.

    The axis is inverted to match the paper's Figure 2, whose alpha weighs size.
    """
    figure, (left, right) = style.figure(4.6, columns=2)
    turned = [{**row, "weight": 1 - row["align_weight"]} for row in rows]
    for arm, look in style.marks(arms).items():
        _line(left, turned, "weight", f"share_{arm}", look)
    left.set_ylim(-0.03, 1.03)
    left.set_ylabel("share of queries")
    field, label = ("speedup", LABELS["speedup"]) if "speedup" in rows[0] else _AGREEMENT
    _line(right, turned, "weight", field, {"color": style.DARK, "marker": "o"})
    right.set_ylabel(label)
    for axes in (left, right):
        axes.set_xlabel("1 - align_weight")
    figure.legend(loc="outside upper center", ncols=len(arms))
    return figure


_AGREEMENT = "agreement", "mean agreement with the target"


def _line(
    axes: Axes, rows: Sequence[Mapping[str, Any]], by: str, field: str, look: Mapping[str, Any]
) -> None:
    """The mean of `field` over rows with the same `by`, and a band over all of them."""
    groups: dict[float, list[float]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row[field])
    places = sorted(groups)
    means = [float(np.mean(groups[place])) for place in places]
    axes.plot(places, means, linewidth=1.2, **look)
    low, high = ([pick(groups[place]) for place in places] for pick in (min, max))
    axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
