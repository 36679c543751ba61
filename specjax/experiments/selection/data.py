"""Offline data for choosing a drafter: outputs and times of every arm on every query.

See docs/methods/selection.md, "Offline data".

Context-aware assistant selection: the target's greedy output, every arm's own output, the prompt's
embedding and, if requested, measured seconds. Every part resumes an interrupted run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.fields import (
    check_rows_per_device,
)
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.config.placement import check_ways
from specjax.experiments.decode.data import check_sources, data_words
from specjax.experiments.decode.strategies import check_models
from specjax.experiments.pairs import describe_pair
from specjax.experiments.selection import parts as select_parts
from specjax.experiments.selection.arms import StrategyArm, list_writers, load_arms
from specjax.experiments.selection.parts import Job
from specjax.experiments.selection.times import TIMES, measure_times
from specjax.experiments.workdir import check_settings, write_settings
from specjax.measuring.environment import environment
from specjax.pair import Pair
from specjax.reporting.table import align_columns
from specjax.runtime.errors import UserError
from specjax.selection import data, policy
from specjax.selection.reward import ROUGE_L
from specjax.selection.scores import ALL


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Generates the data, or resumes the workdir's run; returns data.json.

    Raises:
      UserError: when a field, a model or the data cannot be used.
    """
    pair, arms = check(config)
    strategies = {name: arm.strategy for name, arm in arms.items()}
    check_decode_memory(config, pair, strategies)
    # Times may be requested later: the generated outputs do not depend on them.
    check_settings(config, workdir, free=("repeats",))
    job = select_parts.prepare(config)
    timed = select_parts.arm_generators(job)
    writers = select_parts.writer_generators(job)
    # After all checks: a refused config must not claim the workdir.
    write_settings(config, workdir)
    outputs = {
        writer: select_parts.generate_outputs(job, writer, generator, workdir)
        for writer, generator in writers.items()
    }
    embeddings = select_parts.embed_queries(job, workdir)
    times = []
    if config.repeats:
        ids = [query.ids for query in job.queries]
        times = measure_times(timed, ids, workdir / TIMES, config.repeats, config.seed)
    rows = select_parts.rows(job, outputs, times)
    content = description(job, embeddings.shape[1])
    data.save(workdir, content, rows, embeddings)
    print(table(rows, list(job.arms)))
    print(f"offline data in {workdir}")
    return content


def plan(config: ConfigDict) -> None:
    """Prints arms, their output models, and the data that is read.

    Raises:
      UserError: when a field, a model or a file cannot be used.
    """
    pair, arms = check(config)
    kind, width = policy.embedding_source(pair.target.model)
    print(f"target: {config.target}; embeddings: {kind} of width {width}")
    for name, arm in arms.items():
        wrote = f"writes {arm.writer.name}" if arm.writer else "writes nothing by itself"
        print(f"arm {name}: {arm.parameters:,} parameters, {wrote}")
    for name, task in config.tasks.items():
        print(f"task {name}: {data_words(task)}, {task.examples or 'all'} queries")
    print(f"generated: {len(list_writers(arms, pair.target.model))} outputs for each query")
    print(f"timed: {config.repeats} decodes by each arm" if config.repeats else "nothing is timed")


def check(config: ConfigDict) -> tuple[Pair, dict[str, StrategyArm]]:
    """Validates the config; returns the pair without weights and the arms.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_rows_per_device(config, "batch_size")
    check_ways(config)
    check_tasks(config)
    pair = describe_pair(config)
    arms = load_arms(config, pair)
    check_models({name: arm.strategy for name, arm in arms.items()}, tuple(pair.members))
    if config.repeats == 0:
        check_writers(arms)
    return pair, arms


def check_tasks(config: ConfigDict) -> None:
    """Refuses sets of queries that cannot be read, or with the reserved name of the total."""
    if not config.tasks or ALL in config.tasks:
        raise UserError(
            f"config.tasks has {', '.join(config.tasks) or 'nothing'}; it must name at least one"
            f" set of queries, none of them called {ALL!r}"
        )
    check_sources(config, "tasks")


def check_writers(arms: Mapping[str, StrategyArm]) -> None:
    """Refuses arms with neither outputs nor times."""
    for name, arm in arms.items():
        if arm.writer is None:
            raise UserError(
                f"strategies.{name} drafts without a model that writes by itself, so that only time"
                " can tell how good it is; config.repeats must be at least 1"
            )


def description(job: Job, width: int) -> dict[str, Any]:
    """The content of data.json."""
    return {
        "environment": environment(),
        "config": job.config.to_dict(),
        "queries": len(job.queries),
        "source": policy.embedding_source(job.target.model)[0],
        "width": width,
        "timed": job.config.repeats > 0,
        "arms": {
            name: {
                "parameters": arm.parameters,
                "writer": arm.writer and arm.writer.name,
                "strategy": job.config.strategies[name].to_dict(),
            }
            for name, arm in job.arms.items()
        },
    }


def table(rows: list[dict[str, Any]], arms: list[str]) -> str:
    """Mean agreement of every arm by task, and its milliseconds per token where it was timed."""
    timed = data.SECONDS in rows[0]
    head = ["task", "queries", *(f"{arm} {ROUGE_L}" for arm in arms)]
    head += [f"{arm} ms/token" for arm in (*arms, data.ALONE) if timed]
    lines = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        cells = [_mean(row[ROUGE_L][arm] for row in own) for arm in arms]
        cells += [_ms_per_token(own, arm) for arm in (*arms, data.ALONE) if timed]
        lines.append([task, str(len(own)), *cells])
    return align_columns(head, lines)


def _mean(values: Any) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else "-"


def _ms_per_token(rows: list[dict[str, Any]], arm: str) -> str:
    seconds = sum(row[data.SECONDS][arm] for row in rows)
    return f"{1e3 * seconds / sum(row[data.TOKENS][arm] for row in rows):.3f}"
