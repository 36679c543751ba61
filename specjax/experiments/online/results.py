"""Results of an online experiment: figures along the stream, texts, a plot and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specjax.experiments.online.parts import Job
from specjax.experiments.online.records import DecodeRecord, Turn
from specjax.measuring.environment import environment
from specjax.metrics.traces import proportion
from specjax.reporting.plots import jobs, style
from specjax.reporting.table import align_columns, cell
from specjax.runtime.json_files import write_json, write_jsonl

RESULTS, TEXTS, PLOTS = "results.json", "texts.jsonl", "plots"

_OF_TEXT = ("tokens", "target_calls", "tested", "accepted", "seconds")
"""Figures of texts.jsonl."""

_COLUMNS = (
    ("texts", "texts", "d"),
    ("accepted", "acceptance", ".3f"),
    ("tok/call", "tokens_per_target_call", ".2f"),
    ("ms/token", "ms_per_token", ".3f"),
    ("same text", "same_as_first", "d"),
)
"""Heading, field of figures, format."""


@dataclasses.dataclass(frozen=True)
class StreamOutput:
    """A text of the stream by one strategy."""

    source: str
    seconds: float  # its share of its batch
    record: DecodeRecord
    same: bool  # as the first strategy's


def write_results(
    job: Job, turns: Sequence[Turn], places: Sequence[Path], workdir: Path
) -> dict[str, Any]:
    """results.json, texts.jsonl, the plot; prints the table."""
    found = collect_decoded(job, turns)
    updates = [turn.learning for turn in turns if turn.learning]
    content = {
        "environment": environment(),
        "config": job.config.to_dict(),
        "strategies": {name: stream_figures(job, rows) for name, rows in found.items()},
        "learning": {
            "updates": len(updates),
            "seconds": sum(update["seconds"] for update in updates),
            "losses": [update["loss"] for update in updates],
        },
    }
    write_json(workdir / RESULTS, content)
    write_jsonl(workdir / TEXTS, text_rows(job, found))
    borders = [at for at in range(1, len(job.sources)) if job.sources[at] != job.sources[at - 1]]
    style.save(jobs.stream(content["strategies"], borders), workdir / PLOTS, "stream")
    print(table(content["strategies"]))
    if updates:
        spent = content["strategies"][job.config.learns]["all"]["seconds"]
        print(
            f"{len(updates)} updates took {content['learning']['seconds']:.1f} seconds and"
            f" decoding by {job.config.learns} {spent:.1f}; the drafter is in"
            f" {' and '.join(map(str, places))}"
        )
    return content


def collect_decoded(job: Job, turns: Sequence[Turn]) -> dict[str, list[StreamOutput]]:
    """Every text in the stream's order, by strategy."""
    found: dict[str, list[StreamOutput]] = {name: [] for name in job.generators}
    for batch, turn in enumerate(turns):
        first = next(iter(turn.records.values()))
        for name, each in turn.records.items():
            seconds = turn.seconds[name] / len(each)
            for row, one, other in zip(job.rows(batch), each, first, strict=True):
                same = one.tokens == other.tokens
                found[name].append(StreamOutput(job.sources[row], seconds, one, same))
    return found


def stream_figures(job: Job, rows: Sequence[StreamOutput]) -> dict[str, Any]:
    """Figures of one strategy: of the whole stream, of its sources, of its blocks."""
    sources = dict.fromkeys(job.sources)
    size = -(-len(rows) // job.config.blocks)
    return {
        "all": figures(rows),
        "sources": {
            source: figures(row for row in rows if row.source == source) for source in sources
        },
        "blocks": [
            {"from": begin, **figures(rows[begin : begin + size])}
            for begin in range(0, len(rows), size)
        ],
    }


def figures(rows: Iterable[StreamOutput]) -> dict[str, Any]:
    """Totals over texts; rates are ratios of totals, None where nothing was tested."""
    rows = list(rows)
    tokens = sum(len(row.record.tokens) for row in rows)
    calls = sum(len(row.record.committed) for row in rows)
    tested = sum(sum(row.record.tested) for row in rows)
    accepted = sum(sum(row.record.accepted) for row in rows)
    seconds, rate = sum(row.seconds for row in rows), proportion(accepted, tested)
    return {
        "texts": len(rows),
        "tokens": tokens,
        "target_calls": calls,
        "tested": tested,
        "accepted": accepted,
        "acceptance": rate["rate"],
        "interval": [rate["low"], rate["high"]],
        "tokens_per_target_call": tokens / calls,
        "seconds": seconds,
        "ms_per_token": 1e3 * seconds / tokens,
        "same_as_first": sum(row.same for row in rows),
    }


def text_rows(job: Job, found: Mapping[str, Sequence[StreamOutput]]) -> list[dict[str, Any]]:
    """A row for every text and strategy."""
    made = []
    for name, rows in found.items():
        outputs = job.generators[name].prompts.texts([row.record.tokens for row in rows])
        for index, (row, output) in enumerate(zip(rows, outputs, strict=True)):
            shared = {"text": index, "source": row.source, "strategy": name}
            whole = figures([row])
            own = {field: whole[field] for field in _OF_TEXT}
            made.append({**shared, "prompt": job.texts[index], "output": output, **own})
    return made


def table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """The strategies on every source for the terminal."""
    head = ["strategy", "source", *(title for title, _, _ in _COLUMNS)]
    lines = [
        [name, source, *(cell(entry[field], form) for _, field, form in _COLUMNS)]
        for name, figures in strategies.items()
        for source, entry in (*figures["sources"].items(), ("all", figures["all"]))
    ]
    return align_columns(head, lines)
