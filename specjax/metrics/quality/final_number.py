"""Worked solutions of which the last number counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from specjax.core.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, percent

_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:\$-?)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)")


@METRICS.register("final_number")
class FinalNumber(Metric):
    """Outputs whose last number equals the last one of a reference."""

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
