"""Error rates of recognized speech and of read images, as the percentage of correct units."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jiwer
import numpy as np

from specjax.contracts.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, alternatives


class ErrorRate(Metric):
    """100 less an error rate: (substituted + deleted + inserted) / units of the reference.

    Computed over all texts together, so that every unit has the same weight. Of several references
    the one with the lowest rate counts. Negative if there are more errors than reference units.
    """

    align: ClassVar[Callable[..., Any]]
    """Aligns a reference with an output in units (jiwer)."""

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        sums = self.statistics(outputs, references).sum(axis=0)
        return self.of_statistics(sums, len(outputs))

    def statistics(self, outputs: Sequence[str], references: Sequence[Reference]) -> np.ndarray:
        """Wrong units and reference units of each text."""
        pairs = zip(outputs, map(alternatives, references), strict=True)
        return np.array([self._best(output, texts) for output, texts in pairs], np.int64)

    def of_statistics(self, sums: np.ndarray, count: float) -> dict[str, float]:
        wrong, units = map(float, sums)
        # With an empty reference every unit is an insertion.
        accuracy = 100 * (1 - wrong / units) if units else 100.0 * (wrong == 0)
        return {self.scores[0]: accuracy}

    def _best(self, output: str, texts: Sequence[str]) -> tuple[int, int]:
        align = type(self).align
        found = [align(self.normalize(text), self.normalize(output)) for text in texts]
        counts = [
            (one.substitutions + one.deletions + one.insertions, len(one.references[0]))
            for one in found
        ]
        return min(counts, key=lambda count: count[0] / max(count[1], 1))

    def normalize(self, text: str) -> str:
        """The text with single spaces between its words."""
        return " ".join(text.split())


@METRICS.register("cer")
class CharacterErrorRate(ErrorRate):
    """The error rate in characters, spaces between words included."""

    scores: ClassVar[tuple[str, ...]] = ("character_accuracy",)
    align = staticmethod(jiwer.process_characters)


@METRICS.register("wer")
class WordErrorRate(ErrorRate):
    """The error rate in words, which are separated by spaces."""

    scores: ClassVar[tuple[str, ...]] = ("word_accuracy",)
    align = staticmethod(jiwer.process_words)


@METRICS.register("wer_basic")
class BasicWordErrorRate(WordErrorRate):
    """The word error rate without case, punctuation and text in brackets (Whisper, appendix C)."""

    def normalize(self, text: str) -> str:
        return super().normalize(_basic()(text))


@METRICS.register("wer_english")
class EnglishWordErrorRate(WordErrorRate):
    """The basic word error rate with normalized English numbers and contractions.

    Whisper's normalizer as in transformers, except the table of British spellings, which is part of
    checkpoints.
    """

    def normalize(self, text: str) -> str:
        return super().normalize(_english()(text))


@functools.cache
def _basic() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    return BasicTextNormalizer()


@functools.cache
def _english() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    return EnglishTextNormalizer({})
