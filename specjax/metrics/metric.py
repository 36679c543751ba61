"""The interface of metrics: scores in percent of outputs against references."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from specjax.contracts.registry import METRICS
from specjax.data.text import Reference
from specjax.runtime.errors import UserError


class Metric(abc.ABC):
    """Scores of outputs, larger is better; equal texts have 100."""

    scores: ClassVar[tuple[str, ...]]
    """Names of the scores; a metric without any needs no references."""

    example: ClassVar[tuple[str, str]] = (
        "the cat sat on the mat today",
        "dogs run in the green park",
    )
    """A text, and another one that is worse when the first is the reference."""

    @abc.abstractmethod
    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        """The scores by name, over all outputs.

        Raises:
          ValueError: when there are not as many references as outputs.
        """

    def statistics(self, outputs: Sequence[str], references: Sequence[Reference]) -> np.ndarray:
        """Contribution of each of N outputs to the scores, float [N, S], for intervals.

        By default an output's own scores, whose mean is the total. A metric that is not such a
        mean, as BLEU, overrides this and `of_statistics`.
        """
        pairs = zip(outputs, references, strict=True)
        own = [self([output], [reference]) for output, reference in pairs]
        return np.array([[scores[name] for name in self.scores] for scores in own])

    def of_statistics(self, sums: np.ndarray, count: float) -> dict[str, float]:
        """The scores by name of `count` outputs whose statistics have these sums [S]."""
        return {name: float(sums[i]) / count for i, name in enumerate(self.scores)}

    @property
    def signature(self) -> str:
        """What makes scores comparable, given one reference each; empty for plain metrics."""
        return ""


def get_metric(name: str) -> Metric:
    """The metric of a registered name.

    Raises:
      UserError: when there is none.
    """
    if name not in METRICS:
        raise UserError(f"metric is {name!r}; it must be one of {', '.join(METRICS)}")
    return METRICS[name].cls()


def alternatives(reference: Reference) -> tuple[str, ...]:
    """All references of an output."""
    return (reference,) if isinstance(reference, str) else reference


def percent(
    right: Callable[[str, str], bool], outputs: Sequence[str], references: Sequence[Reference]
) -> float:
    """The share of outputs that are `right` by one of their references."""
    pairs = zip(outputs, references, strict=True)
    return 100 * float(np.mean([any(right(o, r) for r in alternatives(ref)) for o, ref in pairs]))
