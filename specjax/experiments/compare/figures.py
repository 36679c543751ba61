"""Time and quality of each strategy by run and relative to the first run, with intervals."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specjax.experiments.compare.runs import Run, StrategyOutputs
from specjax.metrics.metric import Metric, get_metric
from specjax.metrics.statistics import draws, interval, over_repetitions, seconds_per_token

EXAMPLES, SEEDS = "examples", "seeds"
"""Values of a row's `interval_over`: what its intervals are computed over."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of one run, and of samples of its examples."""

    value: float
    samples: np.ndarray | None  # [RESAMPLES]; None for too few examples


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A figure with its 95% interval, if there is one."""

    value: float
    low: float | None = None
    high: float | None = None


Row = dict[str, Any]
"""The row of compare.csv of a strategy in a group of runs."""


def rows(groups: Sequence[Sequence[Run]], seed: int) -> list[Row]:
    """One row for every strategy and every group that has it.

    One draw of examples serves all, so that differences are paired.
    """
    runs = [run for group in groups for run in group]
    metric = get_metric(runs[0].metric)
    # Times are known by batch, so whole batches of examples are resampled.
    size = math.lcm(*(run.batch_size for run in runs))
    drawn = draws(-(-len(runs[0].examples) // size), seed)
    names = dict.fromkeys(name for run in runs for name in run.strategies)
    made = []
    for name in names:
        by_group = [[_figures(run, name, metric, size, drawn) for run in group] for group in groups]
        for group, figures in zip(groups, by_group, strict=True):
            if all(figures):
                first = by_group[0] if group is not groups[0] and all(by_group[0]) else None
                made.append(_row(name, group, figures, first))
    return made


def _row(
    name: str, group: Sequence[Run], figures: list[dict[str, Figure]], first: list | None
) -> Row:
    """The row of a group; `first` has the figures of the first group, to compare with."""
    row = {
        "strategy": name,
        "run": group[0].name,
        "runs": len(group),
        "seeds": " ".join(str(run.seed) for run in group),
        "device": group[0].device,
        "lossless": group[0].strategies[name].lossless,
        "interval_over": EXAMPLES if len(group) == 1 else SEEDS,
    }
    for field in figures[0]:
        own = [of_run[field] for of_run in figures]
        row |= _columns(field, over(own))
        if first is not None:
            theirs = [of_run[field] for of_run in first]
            if field == "ms_per_token":
                row |= _columns("speed_ratio", combine_pairs(theirs, own, operator.truediv))
            else:
                row |= _columns(f"{field}_difference", combine_pairs(own, theirs, operator.sub))
    return row


def _columns(field: str, estimate: Estimate) -> dict[str, float | None]:
    return {field: estimate.value, f"{field}_low": estimate.low, f"{field}_high": estimate.high}


def over(figures: Sequence[Figure]) -> Estimate:
    """Mean and interval over several runs; for one run, over its examples."""
    if len(figures) > 1:
        values = np.array([figure.value for figure in figures])
        return Estimate(float(values.mean()), *over_repetitions(values))
    (only,) = figures
    return Estimate(only.value, *(() if only.samples is None else interval(only.samples)))


def combine_pairs(
    ours: Sequence[Figure], theirs: Sequence[Figure], how: Callable[[Any, Any], Any]
) -> Estimate:
    """Ratio or difference of two groups, run by run; no interval if their sizes differ."""
    if len(ours) != len(theirs):
        return Estimate(how(over(ours).value, over(theirs).value))
    pairs = zip(ours, theirs, strict=True)
    return over(
        [
            Figure(how(a.value, b.value), None if a.samples is None else how(a.samples, b.samples))
            for a, b in pairs
        ]
    )


def _figures(
    run: Run, name: str, metric: Metric, size: int, drawn: np.ndarray | None
) -> dict[str, Figure]:
    """Figures of a strategy by name; none when the run lacks it."""
    if name not in run.strategies:
        return {}
    decoded = run.strategies[name]
    seconds = sum_blocks(decoded.seconds, size // run.batch_size)
    tokens = sum_blocks(decoded.tokens, size)
    whole = np.ones((1, len(seconds)), np.int64)

    def times(draw: np.ndarray) -> np.ndarray:
        return 1e3 * seconds_per_token(draw, seconds, tokens)

    return {
        "ms_per_token": Figure(float(times(whole)[0]), None if drawn is None else times(drawn)),
        **_quality(run, decoded, metric, size, drawn),
    }


def _quality(
    run: Run, decoded: StrategyOutputs, metric: Metric, size: int, drawn: np.ndarray | None
) -> dict[str, Figure]:
    """Scores by name; none for a metric that has none."""
    if not metric.scores:
        return {}
    references = [reference for _, reference in run.examples if reference is not None]
    parts = metric.statistics(decoded.outputs, references)
    counts = sum_blocks(np.ones(len(parts)), size)
    blocks = sum_blocks(parts, size)
    value = metric.of_statistics(blocks.sum(0), counts.sum())
    if drawn is None:
        return {score: Figure(value[score], None) for score in metric.scores}
    pairs = zip(drawn @ blocks, drawn @ counts, strict=True)
    samples = [metric.of_statistics(sums, count) for sums, count in pairs]
    return {
        score: Figure(value[score], np.array([sample[score] for sample in samples]))
        for score in metric.scores
    }


def sum_blocks(values: np.ndarray, size: int) -> np.ndarray:
    """Sums of every `size` values along the first axis; the last block may be smaller."""
    return np.add.reduceat(values, np.arange(0, len(values), size), axis=0)
