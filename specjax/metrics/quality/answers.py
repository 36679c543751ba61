"""Accuracy of answers: exact, the letter of a choice, the last number."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import ClassVar

from specjax.contracts.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, percent


@METRICS.register("exact_match")
class ExactMatch(Metric):
    """Share of outputs whose first line is a reference, ignoring case, punctuation, articles."""

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


_CHOICES = (  # the clearest first
    re.compile(r"(?i:answer(?:\s+is)?)[\s:(*]*([A-D])\b"),
    re.compile(r"\(([A-D])\)"),
    re.compile(r"^\W*([A-D])(?:[.):]|\W*$)"),
)


@METRICS.register("choice")
class Choice(Metric):
    """Share of outputs that choose the letter of the reference, A to D."""

    scores: ClassVar[tuple[str, ...]] = ("choice",)
    example: ClassVar[tuple[str, str]] = ("B", "C")

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        return {"choice": percent(lambda o, r: find_choice(o) == r, outputs, references)}


def find_choice(text: str) -> str | None:
    """The last letter that an answer to a question with four choices gives."""
    for pattern in _CHOICES:
        if letters := pattern.findall(text):
            return letters[-1]
    return None


_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:\$-?)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)")


@METRICS.register("final_number")
class FinalNumber(Metric):
    """Share of outputs whose last number equals the last one of a reference."""

    scores: ClassVar[tuple[str, ...]] = ("final_number",)
    example: ClassVar[tuple[str, str]] = ("2 + 2 = 4", "4 + 4 = 8")

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        return {"final_number": percent(same_number, outputs, references)}


def same_number(output: str, reference: str) -> bool:
    """Whether both end in the same number."""
    return (number := last_number(output)) is not None and number == last_number(reference)


def last_number(text: str) -> float | None:
    """The last number of a text; thousands may have commas, and a $ may come first."""
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "").replace("$", "")) if numbers else None


@METRICS.register("none")
class NoMetric(Metric):
    """No score; references are not needed."""

    scores: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, outputs: Sequence[str], references: Sequence[Reference | None]
    ) -> dict[str, float]:
        return {}
