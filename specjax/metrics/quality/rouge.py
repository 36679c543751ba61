"""ROUGE, by Google's package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from typing import ClassVar

import numpy as np

from specjax.core.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, alternatives

_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])\s+")


@METRICS.register("rouge")
class Rouge(Metric):
    """Mean ROUGE F1 with stemming; Lsum compares sentences, the best reference counts."""

    scores: ClassVar[tuple[str, ...]] = ("rouge1", "rouge2", "rougeL", "rougeLsum")

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        from rouge_score.rouge_scorer import RougeScorer  # slow to import

        scorer = RougeScorer(self.scores, use_stemmer=True)
        texts = [
            scorer.score_multi([sentences(text) for text in alternatives(ref)], sentences(output))
            for output, ref in zip(outputs, references, strict=True)
        ]
        return {
            name: 100 * float(np.mean([scores[name].fmeasure for scores in texts]))
            for name in self.scores
        }

    @property
    def signature(self) -> str:
        return f"rouge-score:{metadata.version('rouge-score')}|stemmer:yes|lsum:sentence ends"


def sentences(text: str) -> str:
    """The text with one sentence per line; sentences end at line ends and . ! ? before a space."""
    return "\n".join(part for part in _SENTENCE_END.split(text) if part.strip())
