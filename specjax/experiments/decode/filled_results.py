"""Writes the results of a filled decode experiment into its workdir."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specjax.data.text import Example
from specjax.decoding.strategy import Strategy
from specjax.experiments.decode.data import collect_references
from specjax.experiments.decode.filled_log import LoggedRows, Row, RowLog
from specjax.experiments.decode.filled_session import FilledSession
from specjax.experiments.decode.results import describe_experiment, find_baseline
from specjax.experiments.decode.show import show
from specjax.experiments.decode.strategies import BASELINE
from specjax.metrics.metric import Metric, get_metric
from specjax.metrics.sums import describe_sums
from specjax.models.quantized_weights import count_numbers
from specjax.reporting.throughput import write_report, write_tables
from specjax.runtime.files import replacing
from specjax.runtime.json_files import write_json

OUTPUTS = "outputs.jsonl"
"""File in the workdir: a row for each example and strategy, as of a static run."""

_SCORED = 64
"""Outputs that are scored at a time."""


def write(session: FilledSession, log: RowLog, workdir: Path) -> dict[str, Any]:
    """Writes results.json, outputs.jsonl, the report and tables; prints a table."""
    scores = write_outputs(session, log, workdir / OUTPUTS)
    sums = log.sum_up(list(session.generators))
    figures = {
        name: describe_sums(generator.decoder, sums[name])
        for name, generator in session.generators.items()
    }
    content = {
        **describe_experiment(session.config, session.metric, session.survey.count),
        "models": {
            name: {"parameters": count_numbers(entry.params)}
            for name, entry in session.pair.members.items()
        },
        "strategies": {
            name: {
                **describe_throughput(session, log, name),
                **entry,
                **scores[name].describe(session.strategies[name]),
                "lossless": session.strategies[name].lossless,
            }
            for name, entry in figures.items()
        },
    }
    write_report(content, workdir)
    write_tables(content, workdir)
    write_json(workdir / "results.json", content)
    show(content, workdir)
    return content


def describe_throughput(session: FilledSession, log: RowLog, name: str) -> dict[str, Any]:
    """Speed, occupancy and times of a strategy: medians of its passes, and each of these.

    `speedup` is the median of the ratios to the baseline's pass of the same number.
    """
    baseline = find_baseline(session.strategies[name], session.strategies)
    numbers = range(session.config.repeats)
    own, base = ([log.figures[each, number] for number in numbers] for each in (name, baseline))
    speeds, base_speeds = ([one["tokens_per_second"] for one in each] for each in (own, base))
    pairs = zip(speeds, base_speeds, strict=True)
    speed = find_median(speeds)
    times = ("first_token_seconds", "last_token_seconds")
    return {
        "baseline": baseline,
        "seconds": find_median([one["seconds"] for one in own]),
        "tokens_per_second": speed,
        "ms_per_token": 1e3 / speed if speed else None,
        "speedup": find_median([one / other if one and other else None for one, other in pairs]),
        "occupancy": find_median([one["occupancy"] for one in own]),
        "occupancy_before_tail": find_median([one["occupancy_before_tail"] for one in own]),
        **{
            time: {part: find_median([one[time][part] for one in own]) for part in own[0][time]}
            for time in times
        },
        "resumed_rows": sum(one["resumed_rows"] for one in own),
        "passes": own,
    }


def find_median(values: Sequence[float | None]) -> float | None:
    """The median of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


@dataclasses.dataclass
class Scores:
    """Running scores of the outputs of a strategy."""

    metric: Metric
    sums: Any = 0  # [S] of the metric's statistics
    rows: int = 0
    same: int = 0  # rows with the tokens of the greedy baseline

    def add(self, rows: Sequence[Row], base: Sequence[Row], examples: Sequence[Example]) -> None:
        """Adds rows of these examples."""
        self.rows += len(rows)
        pairs = zip(rows, base, strict=True)
        self.same += sum(row["tokens"] == other["tokens"] for row, other in pairs)
        if self.metric.scores:
            outputs, references = (
                [row["output"] for row in rows],
                collect_references(list(examples)),
            )
            self.sums = self.sums + self.metric.statistics(outputs, references).sum(axis=0)

    def describe(self, strategy: Strategy) -> dict[str, Any]:
        """The figures of a strategy about its texts, by their names in results.json."""
        scored = self.metric.scores
        is_same = strategy.greedy and strategy.lossless
        return {
            "identical_to_target": self.same / self.rows if strategy.greedy else None,
            "differing": self.rows - self.same if is_same else None,
            "quality": self.metric.of_statistics(self.sums, self.rows) if scored else {},
        }


def write_outputs(session: FilledSession, log: RowLog, file: Path) -> dict[str, Scores]:
    """Writes every output in the order of the examples; returns the scores by strategy."""
    names = list(session.generators)
    scores = {name: Scores(get_metric(session.metric)) for name in names}
    with (
        log.file.open("rb") as opened,
        replacing(file) as partial,
        partial.open("w", encoding="utf-8") as out,
    ):
        logged = LoggedRows(log.file, opened, names, session.survey.count)
        for first, examples in read_blocks(session.source.examples()):
            places = range(first, first + len(examples))
            rows = {name: [logged.get(name, place) for place in places] for name in names}
            for name in names:
                scores[name].add(rows[name], rows[BASELINE], examples)
            for index, example in enumerate(examples):
                for name in names:
                    out.write(format_output(example, name, rows[name][index]) + "\n")
    return scores


def read_blocks(examples: Iterator[Example]) -> Iterator[tuple[int, list[Example]]]:
    """Blocks of examples, each with the place of its first one."""
    block: list[Example] = []
    first = 0
    for example in examples:
        block.append(example)
        if len(block) == _SCORED:
            yield first, block
            first, block = first + len(block), []
    if block:
        yield first, block


def format_output(example: Example, name: str, row: Mapping[str, Any]) -> str:
    """A line of outputs.jsonl."""
    head = {"example": row["example"], "strategy": name}
    texts = {"source": example.source, "reference": example.reference}
    return json.dumps({**head, **texts, **row}, ensure_ascii=False)
