"""Results of a beams experiment: figures of each search, all texts, and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from specjax.decoding.beams.outcome import BeamStatistics
from specjax.experiments.decode.data import Data, collect_references
from specjax.metrics.metric import get_metric
from specjax.reporting.table import align_columns, cell

_COLUMNS = (
    ("ms/token", "ms_per_token", ".3f"),
    ("speed over first", "speed_ratio", ".2f"),
    ("steps/call", "steps_per_round", ".2f"),
    ("nodes/call", "nodes_per_round", ".1f"),
    ("same text", "same_as_first", "d"),
    ("tokens", "tokens", "d"),
)
"""Heading, field of a strategy in results.json, format."""


@dataclasses.dataclass(frozen=True)
class SearchOutput:
    """Output of one search for a batch."""

    hypotheses: list[list[dict[str, Any]]]  # of each example, best first, as outputs.jsonl has them
    statistics: BeamStatistics


def figures(
    name: str,
    results: Mapping[str, Sequence[SearchOutput]],
    seconds: Mapping[str, float],
    data: Data,
) -> dict[str, Any]:
    """The entry of a strategy in results.json."""
    first = next(iter(results))
    made = [decoded.statistics for decoded in results[name]]
    tokens, rounds = sum(one.tokens for one in made), sum(one.rounds for one in made)
    best, of_first = (_best(results[each]) for each in (name, first))
    pairs = zip(best, of_first, strict=True)
    return {
        "seconds": seconds[name],
        "tokens": tokens,
        "ms_per_token": 1e3 * seconds[name] / tokens,
        "speed_ratio": seconds[first] / seconds[name],
        "steps_per_round": sum(one.steps for one in made) / rounds,
        "nodes_per_round": sum(one.nodes for one in made) / rounds,
        "rounds": rounds,
        "drafts": sum(one.drafts for one in made),
        "same_as_first": sum(one["tokens"] == two["tokens"] for one, two in pairs),
        "quality": get_metric(data.metric)(
            [one["text"] for one in best], collect_references(data.examples)
        ),
    }


def output_rows(data: Data, results: Mapping[str, Sequence[SearchOutput]]) -> list[dict[str, Any]]:
    """One row per example and strategy, with all hypotheses, best first."""
    found = {
        name: [row for decoded in each for row in decoded.hypotheses]
        for name, each in results.items()
    }
    return [
        {
            "example": index,
            "strategy": name,
            "source": example.source,
            "reference": example.reference,
            "output": hypotheses[index][0]["text"],
            "hypotheses": hypotheses[index],
        }
        for index, example in enumerate(data.examples)
        for name, hypotheses in found.items()
    ]


def _best(each: Sequence[SearchOutput]) -> list[dict[str, Any]]:
    """The best hypothesis of every example."""
    return [row[0] for decoded in each for row in decoded.hypotheses]


def table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """Table of the strategies for the terminal."""
    scores = list(next(iter(strategies.values()))["quality"])
    head = ["strategy", *(title for title, _, _ in _COLUMNS), *scores]
    lines = [
        [
            name,
            *(cell(entry[field], form) for _, field, form in _COLUMNS),
            *(cell(entry["quality"][score], ".2f") for score in scores),
        ]
        for name, entry in strategies.items()
    ]
    return align_columns(head, lines)
