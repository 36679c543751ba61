"""Questions with four choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from specjax.core.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, percent

_CHOICES = (  # the clearest first
    re.compile(r"(?i:answer(?:\s+is)?)[\s:(*]*([A-D])\b"),
    re.compile(r"\(([A-D])\)"),
    re.compile(r"^\W*([A-D])(?:[.):]|\W*$)"),
)


@METRICS.register("choice")
class Choice(Metric):
    """Outputs that choose the letter of the reference, A to D."""

    scores: ClassVar[tuple[str, ...]] = ("choice",)
    example: ClassVar[tuple[str, str]] = ("B", "C")

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        return {"choice": percent(lambda o, r: chosen(o) == r, outputs, references)}


def chosen(text: str) -> str | None:
    """The letter that an answer to a question with four choices settles on last."""
    for pattern in _CHOICES:
        if letters := pattern.findall(text):
            return letters[-1]
    return None
