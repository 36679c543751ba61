"""Outputs that are only looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specjax.core.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric


@METRICS.register("none")
class NoMetric(Metric):
    """No score; references are not needed."""

    scores: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, outputs: Sequence[str], references: Sequence[Reference | None]
    ) -> dict[str, float]:
        return {}
