"""Prints the results of a decode experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.experiments.config.schema import FILLED
from specjax.reporting import summary as terminal
from specjax.reporting.summary import summary
from specjax.reporting.table import arm_table, group_table, handover_table, predictions, table
from specjax.reporting.throughput import throughput_table


def show(content: Mapping[str, Any], workdir: Path) -> None:
    """Prints the table of all strategies; with `--verbose` first all tables of the report."""
    strategies = content["strategies"]
    is_filled = content["config"].get("batching") == FILLED
    for text in () if is_filled else _details(content):
        terminal.details(text)
    terminal.show(throughput_table(strategies) if is_filled else summary(strategies))
    if any(entry["quality"] for entry in strategies.values()):
        print(f"metric: {content['environment']['metric']}")
    file = "results.json" if is_filled else "report.html"
    print(f"results in {workdir}, all figures in {workdir / file}")


def _details(content: Mapping[str, Any]) -> list[str]:
    strategies = content["strategies"]
    texts = [table(strategies), predictions(strategies)]
    if any(not entry["lossless"] for entry in strategies.values()):
        texts.append(handover_table(strategies))
    if any(entry["arms"] for entry in strategies.values()):
        texts.append(arm_table(strategies))
    if content["groups"]:
        texts.append(group_table(content["groups"]))
    return texts
