"""The engagement experiment: quality against how often the target steps in.

See docs/methods/bild.md, "Oracle engagement".

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), Figure 2: a small model that the
large one corrects at a fifth of its tokens writes as well as the large one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config import defaults
from specjax.experiments.config.fields import model_names
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.strategies import BASELINE
from specjax.reporting.plots import style
from specjax.reporting.plots.jobs import quality_against_engagement
from specjax.reporting.report import PLOTS
from specjax.reporting.table import align_columns, cell
from specjax.runtime.errors import UserError
from specjax.runtime.files import write_csv

TABLE = "engagement.csv"
"""Files in the workdir, in addition to those of a decode experiment."""


def run(config: ConfigDict, workdir: Path) -> list[dict[str, Any]]:
    """Decodes with every drafter at every threshold; writes and returns the table, draws the plot.

    Raises:
      UserError: when the config cannot be used.
    """
    content = decode.run(to_decode_config(config), workdir)
    lines = rows(config, content["strategies"])
    write_csv(workdir / TABLE, lines)
    figure = quality_against_engagement(lines, content["strategies"][BASELINE]["quality"])
    if figure:
        style.save(figure, workdir / PLOTS, "engagement")
    print(table(lines))
    return lines


def plan(config: ConfigDict) -> None:
    """Prints the resources that the experiment would need."""
    decode.plan(to_decode_config(config))


def to_decode_config(config: ConfigDict) -> ConfigDict:
    """The decode config with one strategy for each drafter and threshold."""
    names = _drafters(config)
    strategies = {
        strategy(name, value): _oracle(name, value) for name in names for value in config.thresholds
    }
    return defaults.to_decode_config(config, strategies=strategies)


def _oracle(model: str, threshold: float) -> dict[str, Any]:
    """A strategy that drafts one token at a time; the target checks each."""
    drafting = {"drafter": "neural", "model": model, "length": 1}
    return drafting | {"rule": "oracle", "engage": float(threshold)}


def _drafters(config: ConfigDict) -> list[str]:
    names = [name for name in model_names(config) if name != "target"]
    if not names:
        raise UserError("config.drafter is empty; it must be a model directory or hub id")
    return names


def strategy(name: str, threshold: float) -> str:
    """The name of a drafter's strategy."""
    return f"{name}_{threshold:g}".replace(".", "_")


def rows(config: ConfigDict, strategies: dict[str, Any]) -> list[dict[str, Any]]:
    """Table rows, one for each drafter and threshold.

    `engaged_percent` is the share of tokens that the target wrote; `changed_percent` is the share
    where its token differs from the drafter's.
    """
    lines = []
    for name in _drafters(config):
        for threshold in config.thresholds:
            entry = strategies[strategy(name, threshold)]
            counters, tokens = entry["handovers"], max(entry["tokens"], 1)
            lines.append(
                {
                    "model": name,
                    "threshold": float(threshold),
                    "tokens": entry["tokens"],
                    "engaged_percent": 100 * counters["rollbacks"] / tokens,
                    "changed_percent": 100 * counters["replaced"] / tokens,
                    **entry["quality"],
                }
            )
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """The rows for the terminal."""
    head = list(lines[0])
    return align_columns(
        head, [[line["model"], *(cell(line[field], ".4g") for field in head[1:])] for line in lines]
    )
