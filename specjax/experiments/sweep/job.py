"""The sweep experiment: a decode config over a grid of its fields, one run for each point."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode import job as decode
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.experiments.sweep.best import Line, best, best_table
from specjax.experiments.sweep.grid import Point, points
from specjax.metrics.statistics import front
from specjax.pair import Pair
from specjax.reporting import summary
from specjax.reporting.plots import style
from specjax.reporting.plots.jobs import quality_against_speed
from specjax.reporting.report import PLOTS
from specjax.reporting.table import align_columns, cell
from specjax.runtime.files import write_csv
from specjax.runtime.json_files import write_jsonl
from specjax.runtime.progress import progress

ROWS, TABLE, BEST, RUNS = "sweep.jsonl", "sweep.csv", "best.csv", "runs"
"""Files in the workdir: a line by run, a line by run and strategy, best points, run folders."""

_FIGURES = (
    "tokens",
    "ms_per_token",
    "speedup",
    "speedup_predicted",
    "acceptance_rate",
    "tokens_per_target_call",
    "layers_per_token",
    "identical_to_target",
    "differing",
    "near_ties",
    "lossless",
    "baseline",
    "quality",
)
"""Fields of a strategy in results.json that a row contains."""

Row = dict[str, Any]
"""{"point", "fields", "error" (None when it ran), "strategies": {name: figures}}"""


def run(config: ConfigDict, workdir: Path) -> list[Row]:
    """Runs every unfinished point; writes rows, table and plots; returns the rows.

    A point is finished when its folder holds results of exactly its config. The row of a failed
    point has its error; the next call retries it. Points share loaded models and compiled programs
    where possible.

    Raises:
      UserError: when the base config or the grid cannot be used.
    """
    all_points = points(config)
    (workdir / RUNS).mkdir(parents=True, exist_ok=True)
    rows = {}
    pair: Pair | None = None
    loaded = ""
    with progress(all_points, unit="point") as bar:
        for point in bar:
            bar.set_description(point.label)
            folder = workdir / RUNS / point.name
            results = read_finished(point, folder)
            error = None
            if results is None:
                try:
                    described = describe_pair(point.config)
                    check_decode_memory(point.config, described, point.strategies)
                    if pair is None or point.models != loaded:
                        if pair is not None:
                            # Memory may not hold two sets of models.
                            pair = None
                            jax.clear_caches()
                        pair, loaded = load_pair(point.config), point.models
                    results = run_point(point, pair, folder)
                except Exception as problem:  # the other points run in any case
                    error = f"{type(problem).__name__}: {problem}"
                    bar.write(f"{point.label} failed: {error}")
            rows[point.name] = row(point, results, error)
            write_jsonl(workdir / ROWS, list(rows.values()))
    write_summary(list(rows.values()), all_points, workdir)
    return list(rows.values())


def plan(config: ConfigDict) -> None:
    """Prints the points.

    Raises:
      UserError: when the base config or the grid cannot be used.
    """
    all_points = points(config)
    sets = list(dict.fromkeys(point.models for point in all_points))
    print(f"{len(all_points)} runs; models are loaded {len(sets)} time(s)")
    fields = list(dict.fromkeys(field for point in all_points for field in point.fields))
    lines = [
        [
            point.name,
            *(repr(point.fields[field]) if field in point.fields else "-" for field in fields),
            str(sets.index(point.models) + 1),
        ]
        for point in all_points
    ]
    print(align_columns(["folder in runs/", *fields, "models"], lines))
    names = dict.fromkeys(name for point in all_points for name in point.config.strategies)
    print(f"strategies: {', '.join(names)}")


def read_finished(point: Point, folder: Path) -> dict[str, Any] | None:
    """The results of a finished point of exactly this config, else None."""
    try:
        results = json.loads((folder / "results.json").read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    same = results.get("config") == json.loads(json.dumps(point.config.to_dict()))
    return results if same else None


def run_point(point: Point, pair: Pair, folder: Path) -> dict[str, Any]:
    """Runs one decode experiment; its output goes to `printed.txt` in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "printed.txt").open("w", encoding="utf-8") as out,
        contextlib.redirect_stdout(out),
        summary.verbosity(True),
    ):
        return decode.run_pair(point.config, point.strategies, pair, folder)


def row(point: Point, results: dict[str, Any] | None, error: str | None) -> Row:
    """One line of sweep.jsonl."""
    strategies = results["strategies"] if results else {}
    figures = {
        name: {field: entry.get(field) for field in _FIGURES} for name, entry in strategies.items()
    }
    return {"point": point.name, "fields": point.fields, "error": error, "strategies": figures}


def write_summary(rows: Sequence[Row], all_points: Sequence[Point], workdir: Path) -> None:
    """Writes sweep.csv and the Pareto plots; prints the table."""
    lines = [
        {
            "point": outcome["point"],
            "label": point.label,
            "strategy": name,
            **outcome["fields"],
            **entry,
        }
        for outcome, point in zip(rows, all_points, strict=True)
        for name, entry in outcome["strategies"].items()
    ]
    failed = [outcome for outcome in rows if outcome["error"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} runs in {workdir}")
    for outcome in failed:
        print(f"failed: {outcome['point']}: {outcome['error']}")
    if not lines:
        return
    speed, words = speed_axis(all_points)
    metrics = list(lines[0]["quality"])
    for line in lines:
        line.update(line.pop("quality"))
    for metric in metrics:
        speeds, qualities = [speed(line) for line in lines], [line[metric] for line in lines]
        for line, on in zip(lines, front(speeds, qualities), strict=True):
            line[f"front_{metric}"] = bool(on)
        series, labels = [line["strategy"] for line in lines], [line["label"] for line in lines]
        axes = words, f"{metric} (points of 100)"
        figure = quality_against_speed(speeds, qualities, series, labels, axes)
        style.save(figure, workdir / PLOTS, f"pareto_{metric}")
    choices = best(lines, speed, metrics[0]) if metrics else []
    if choices:
        write_csv(workdir / BEST, choices)
    write_csv(workdir / TABLE, [{k: x for k, x in line.items() if k != "label"} for line in lines])
    print_table(lines, metrics)
    if choices:
        print(best_table(choices, words, metrics[0]))


def speed_axis(all_points: Sequence[Point]) -> tuple[Callable[[Line], float], str]:
    """The field that measures speed, and its axis label.

    Speedups over different models, data or batch sizes have different baselines.
    """
    if all(field.startswith("strategies.") for point in all_points for field in point.fields):
        return (lambda line: line["speedup"]), "speedup over autoregressive decoding (times)"
    return (lambda line: 1e3 / line["ms_per_token"]), "speed (tokens per second)"


def print_table(lines: Sequence[dict[str, Any]], metrics: Sequence[str]) -> None:
    """The figures of every run and strategy; a star marks the Pareto front of the first metric."""
    columns = (
        ("ms/token", "ms_per_token", ".3f"),
        ("speedup", "speedup", ".2f"),
        ("accepted", "acceptance_rate", ".3f"),
        *((metric, metric, ".2f") for metric in metrics),
    )
    rows = [
        [
            line["label"],
            line["strategy"],
            *(cell(line[field], form) for _, field, form in columns),
            "*" if any(line[f"front_{metric}"] for metric in metrics[:1]) else "",
        ]
        for line in lines
    ]
    print(align_columns(["point", "strategy", *(title for title, _, _ in columns), "front"], rows))
