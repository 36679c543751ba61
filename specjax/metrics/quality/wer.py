"""Word error rate of speech recognition, as the words that were heard right."""

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

    Over all texts together, so that a word counts the same in a short one and in a long one. Of
    several references the one with the lowest rate counts. Below 0 where more words are wrong than
    the references have. Words are what spaces separate.
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
        # Where nothing is said, every word is one too many.
        return {"word_accuracy": 100 * (1 - wrong / words) if words else 100.0 * (wrong == 0)}

    def _best(self, output: str, texts: Sequence[str]) -> tuple[int, int]:
        found = [jiwer.process_words(self.words(text), self.words(output)) for text in texts]
        counts = [
            (words.substitutions + words.deletions + words.insertions, len(words.references[0]))
            for words in found
        ]
        return min(counts, key=lambda count: count[0] / max(count[1], 1))

    def words(self, text: str) -> str:
        """The words of a text as they are compared, with spaces between them."""
        return " ".join(text.split())


@METRICS.register("wer_basic")
class BasicWordErrorRate(WordErrorRate):
    """The same without case, punctuation and what stands in brackets (Whisper, appendix C)."""

    def words(self, text: str) -> str:
        return super().words(_basic()(text))


@METRICS.register("wer_english")
class EnglishWordErrorRate(WordErrorRate):
    """The same with English numbers and contractions in one form, too.

    Whisper's normalizer as transformers has it, but for the table of British spellings, which is
    part of checkpoints.
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
