"""Word error rate of speech recognition, as the percentage of correct words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import jiwer
import numpy as np

from specjax.contracts.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, alternatives


@METRICS.register("wer")
class WordErrorRate(Metric):
    """100 less the word error rate: (substituted + deleted + inserted) / reference words.

    Computed over all texts together, so that every word has the same weight. Of several references
    the one with the lowest rate counts. Negative if there are more errors than reference words.
    Words are separated by spaces.
    """

    scores: ClassVar[tuple[str, ...]] = ("word_accuracy",)

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        sums = self.statistics(outputs, references).sum(axis=0)
        return self.of_statistics(sums, len(outputs))

    def statistics(self, outputs: Sequence[str], references: Sequence[Reference]) -> np.ndarray:
        """Wrong words and reference words of each text."""
        pairs = zip(outputs, map(alternatives, references), strict=True)
        return np.array([self._best(output, texts) for output, texts in pairs], np.int64)

    def of_statistics(self, sums: np.ndarray, count: float) -> dict[str, float]:
        wrong, words = map(float, sums)
        # With an empty reference every word is an insertion.
        return {"word_accuracy": 100 * (1 - wrong / words) if words else 100.0 * (wrong == 0)}

    def _best(self, output: str, texts: Sequence[str]) -> tuple[int, int]:
        found = [jiwer.process_words(self.words(text), self.words(output)) for text in texts]
        counts = [
            (words.substitutions + words.deletions + words.insertions, len(words.references[0]))
            for words in found
        ]
        return min(counts, key=lambda count: count[0] / max(count[1], 1))

    def words(self, text: str) -> str:
        """The normalized words of a text, joined by spaces."""
        return " ".join(text.split())


@METRICS.register("wer_basic")
class BasicWordErrorRate(WordErrorRate):
    """The word error rate without case, punctuation and text in brackets (Whisper, appendix C)."""

    def words(self, text: str) -> str:
        return super().words(_basic()(text))


@METRICS.register("wer_english")
class EnglishWordErrorRate(WordErrorRate):
    """The basic word error rate with normalized English numbers and contractions.

    Whisper's normalizer as in transformers, except the table of British spellings, which is part of
    checkpoints.
    """

    def words(self, text: str) -> str:
        return super().words(_english()(text))


@functools.cache
def _basic() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    return BasicTextNormalizer()


@functools.cache
def _english() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    return EnglishTextNormalizer({})
