"""Reads finished decode runs from their workdirs and checks that they are comparable."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specjax.data.text import Reference
from specjax.experiments.config.schema import STATIC
from specjax.metrics.metric import get_metric
from specjax.runtime.errors import UserError

FILES = ("results.json", "outputs.jsonl", "trace.npz")
"""Files in the workdir of a decode run."""


@dataclasses.dataclass(frozen=True)
class StrategyOutputs:
    """Outputs and times of one strategy on N examples."""

    lossless: bool
    outputs: list[str]  # [N]
    tokens: np.ndarray  # [N] int: of every output
    seconds: np.ndarray  # [batches], each the median of its repeats


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished decode run."""

    name: str  # as the config names it
    config: dict[str, Any]
    seed: int
    batch_size: int
    device: str
    metric: str
    examples: list[tuple[str, Reference | None]]  # [N]: source and reference
    strategies: dict[str, StrategyOutputs]


def read_runs(names: str) -> list[Run]:
    """The runs of `config.runs`, which decoded the same examples.

    Raises:
      UserError: when there are fewer than two, one of them cannot be read, or they differ in what
        they decoded.
    """
    folders = [name.strip() for name in names.split(",")]
    if len(folders) < 2 or len(set(folders)) < len(folders) or "" in folders:
        raise UserError(
            f"config.runs is {names!r}; it must name two or more workdirs of decode runs, each"
            " once, commas between"
        )
    runs = [read_run(name) for name in folders]
    for other in runs[1:]:
        check_same_examples(runs[0], other)
    return runs


def read_run(name: str) -> Run:
    """The decode run of a workdir.

    Raises:
      UserError: when it holds none, or one that did not end.
    """
    if not os.path.isdir(name):
        raise UserError(f"config.runs names {name!r}, which is not a folder")
    _check_static(name, Path(name) / FILES[0])
    for file in FILES:
        if not (Path(name) / file).is_file():
            raise UserError(
                f"config.runs names {name!r}, which has no {file}: no decode run has ended there"
            )
    try:
        return _run(name, *(Path(name) / file for file in FILES))
    except Exception as error:  # any error here comes from the files
        raise UserError(
            f"config.runs names {name!r}, whose files cannot be read as those of a decode run by"
            f" this version ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from None


def _check_static(name: str, file: Path) -> None:
    """Refuses a run whose batches were refilled: it has no seconds of a batch.

    Raises:
      UserError: naming it.
    """
    batching = STATIC
    with contextlib.suppress(OSError, ValueError, KeyError, AttributeError, TypeError):
        batching = json.loads(file.read_text("utf-8"))["config"].get("batching", STATIC)
    if batching != STATIC:
        raise UserError(
            f"config.runs names {name!r}, a run with config.batching {batching!r}; it must be"
            f" {STATIC!r}: intervals are over the seconds of batches"
        )


def check_same_examples(one: Run, other: Run) -> None:
    """Refuses runs of other examples, or of another metric.

    Raises:
      UserError: naming what differs.
    """
    must = f"config.runs: {one.name!r} and {other.name!r} must have decoded the same examples"
    if len(one.examples) != len(other.examples):
        raise UserError(f"{must}, but have {len(one.examples)} and {len(other.examples)}")
    for index, pair in enumerate(zip(one.examples, other.examples, strict=True)):
        if pair[0] != pair[1]:
            raise UserError(f"{must}, but differ in example {index}")
    if one.metric != other.metric:
        raise UserError(f"{must} by one metric, but have {one.metric!r} and {other.metric!r}")


def same_but_for_seeds(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups of runs with the same config and device and different seeds, by seed.

    A second run of a seed starts another group: its code may differ.
    """
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            if _setting(group[0]) == _setting(run) and run.seed not in [r.seed for r in group]:
                group.append(run)
                break
        else:
            groups.append([run])
    return [sorted(group, key=lambda run: run.seed) for group in groups]


def _setting(run: Run) -> tuple[dict[str, Any], str]:
    fields = {k: value for k, value in run.config.items() if k not in ("seed", "overwrite")}
    return fields, run.device


def _run(name: str, results_file: Path, outputs_file: Path, trace_file: Path) -> Run:
    results = json.loads(results_file.read_text("utf-8"))
    rows = [json.loads(line) for line in outputs_file.read_text("utf-8").splitlines() if line]
    strategies, config = results["strategies"], results["config"]
    get_metric(results["data"]["metric"])  # refuses an unknown one
    by_strategy = {key: [row for row in rows if row["strategy"] == key] for key in strategies}
    first = next(iter(by_strategy.values()), [])
    with np.load(trace_file) as trace:
        decoded = {
            key: _make_outputs(entry, by_strategy[key], trace[f"{key}/seconds"])
            for key, entry in strategies.items()
        }
    sizes = {(len(strategy.outputs), len(strategy.seconds)) for strategy in decoded.values()}
    if not first or sizes != {(len(first), -(-len(first) // config["batch_size"]))}:
        raise ValueError("outputs and times are not of the same examples")
    return Run(
        name,
        config,
        config["seed"],
        config["batch_size"],
        results["environment"]["device"],
        results["data"]["metric"],
        [(row["source"], _reference(row["reference"])) for row in first],
        decoded,
    )


def _make_outputs(
    entry: dict[str, Any], rows: list[dict[str, Any]], seconds: np.ndarray
) -> StrategyOutputs:
    return StrategyOutputs(
        entry["lossless"],
        [row["output"] for row in rows],
        np.array([len(row["tokens"]) for row in rows]),
        np.median(np.asarray(seconds, np.float64), axis=1),
    )


def _reference(value: Any) -> Reference | None:
    return tuple(value) if isinstance(value, list) else value
