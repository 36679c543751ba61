"""Summary of a sweep: the fastest point of each strategy by allowed loss of quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specjax.metrics.statistics import fastest
from specjax.reporting.table import align_columns, cell

LOSSES = {"no loss": 0.1, "within one point": 1.0}
"""Points of quality that a choice may lose; below 0.1 counts as none (Kim et al., 2023)."""

Line = Mapping[str, Any]
"""Figures of one strategy in one run; qualities by the name of their metric."""


def best(
    lines: Sequence[Line], speed: Callable[[Line], float], metric: str
) -> list[dict[str, Any]]:
    """The fastest point of every drafting strategy for every allowed loss.

    Quality is compared with that of the strategy's baseline in the same run. A strategy without
    such a point has None for point, speed and quality.
    """
    targets = {(line["point"], line["strategy"]): line[metric] for line in lines}
    names = dict.fromkeys(line["strategy"] for line in lines if not _is_baseline(line))
    return [
        {"strategy": name, "loss": words} | _choice(lines, name, loss, speed, metric, targets)
        for name in names
        for words, loss in LOSSES.items()
    ]


def _is_baseline(line: Line) -> bool:
    return line["strategy"] == line["baseline"]


def _choice(
    lines: Sequence[Line],
    name: str,
    loss: float,
    speed: Callable[[Line], float],
    metric: str,
    targets: Mapping[tuple[str, str], float],
) -> dict[str, Any]:
    own = [line for line in lines if line["strategy"] == name]
    lost = [line[metric] - targets[line["point"], line["baseline"]] for line in own]
    index = fastest([speed(line) for line in own], lost, -loss)
    if index is None:
        return {"point": None, "speed": None, metric: None, "change": None}
    line = own[index]
    return {
        "point": line["point"],
        "speed": speed(line),
        metric: line[metric],
        "change": lost[index],
    }


def best_table(choices: Sequence[Line], words: str, metric: str) -> str:
    """The choices as a table; `words` say what speed is."""
    head = ["strategy", "loss", "speed", metric, "change", "point"]
    rows = [
        [
            choice["strategy"],
            choice["loss"],
            cell(choice["speed"], ".2f"),
            cell(choice[metric], ".2f"),
            cell(choice["change"], "+.2f"),
            choice["point"] or "-",
        ]
        for choice in choices
    ]
    return f"best {words}\n{align_columns(head, rows)}"
