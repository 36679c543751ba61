"""Results of a transcribe experiment: figures of each strategy, segments, and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.experiments.decode.data import Data, collect_references
from specjax.metrics.metric import get_metric
from specjax.reporting.table import align_columns, cell
from specjax.transcription.transcript import Transcript

Made = Mapping[str, Sequence[Sequence["TimedTranscript"]]]
"""Transcripts by strategy, repeat and batch."""

_COLUMNS = (
    ("seconds", "seconds", ".2f"),
    ("speed over first", "speed_ratio", ".2f"),
    ("tokens/call", "tokens_per_target_call", ".2f"),
    ("same texts", "same_as_first", "d"),
)
"""Heading, field of a strategy in results.json, format."""


@dataclasses.dataclass(frozen=True)
class TimedTranscript:
    """A transcript of a batch, and its seconds."""

    seconds: float
    transcript: Transcript


def figures(name: str, made: Made, data: Data) -> dict[str, Any]:
    """The entry of a strategy in results.json."""
    first = next(iter(made))
    seconds, of_first = (_seconds(made[each]) for each in (name, first))
    ratios = of_first / seconds
    statistics = [one.transcript.statistics for one in made[name][0]]
    texts = _texts(made[name][0])
    return {
        "seconds": float(seconds.mean(axis=0).sum()),
        "speed_ratio": float(of_first.sum() / seconds.sum()),
        "speed_ratio_of_repeats": (of_first.sum(axis=1) / seconds.sum(axis=1)).tolist(),
        "speed_ratio_quartiles": np.quantile(ratios, (0.25, 0.75)).tolist(),
        "tokens": sum(one.tokens for one in statistics),
        "tokens_per_target_call": sum(one.tokens for one in statistics)
        / sum(one.calls["target"] for one in statistics),
        "same_as_first": sum(map(str.__eq__, texts, _texts(made[first][0]))),
        "quality": get_metric(data.metric)(texts, collect_references(data.examples)),
    }


def output_rows(data: Data, made: Made) -> list[dict[str, Any]]:
    """One row per example and strategy, with its segments."""
    segments = {
        name: [row for one in repeats[0] for row in one.transcript.segments]
        for name, repeats in made.items()
    }
    texts = {name: _texts(repeats[0]) for name, repeats in made.items()}
    return [
        {
            "example": index,
            "strategy": name,
            "source": example.source,
            "reference": example.reference,
            "output": texts[name][index],
            "segments": [dataclasses.asdict(segment) for segment in segments[name][index]],
        }
        for index, example in enumerate(data.examples)
        for name in made
    ]


def table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """Table of the strategies for the terminal."""
    scores = list(next(iter(strategies.values()))["quality"])
    lines = [
        [
            name,
            *(cell(entry[field], form) for _, field, form in _COLUMNS),
            *(cell(entry["quality"][score], ".2f") for score in scores),
        ]
        for name, entry in strategies.items()
    ]
    return align_columns(["strategy", *(title for title, _, _ in _COLUMNS), *scores], lines)


def _seconds(repeats: Sequence[Sequence[TimedTranscript]]) -> np.ndarray:
    """Seconds [repeats, batches]."""
    return np.array([[one.seconds for one in batches] for batches in repeats])


def _texts(batches: Sequence[TimedTranscript]) -> list[str]:
    return [text for one in batches for text in one.transcript.texts or []]
