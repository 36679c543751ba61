"""Short answers that must be right to the word."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import ClassVar

from specjax.core.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, percent


@METRICS.register("exact_match")
class ExactMatch(Metric):
    """Outputs whose first line is a reference, but for case, punctuation and articles."""

    scores: ClassVar[tuple[str, ...]] = ("exact_match",)

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        return {"exact_match": percent(matches, outputs, references)}


def matches(output: str, reference: str) -> bool:
    """Whether the first line of an output is the reference."""
    return bare(output.strip().partition("\n")[0]) == bare(reference)


def bare(text: str) -> str:
    """Lower-case words without punctuation and English articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(word for word in plain.split() if word not in ("a", "an", "the"))
