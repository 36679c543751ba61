"""BLEU and ROUGE: the n-grams that outputs share with references."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from importlib import metadata
from typing import ClassVar

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from specjax.contracts.registry import METRICS
from specjax.data.text import Reference
from specjax.metrics.metric import Metric, alternatives


@METRICS.register("bleu")
class Bleu(Metric):
    """Corpus BLEU (sacreBLEU's defaults: 13a, mixed case)."""

    scores: ClassVar[tuple[str, ...]] = ("bleu",)

    def __call__(self, outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
        if len(outputs) != len(references):
            raise ValueError(f"{len(outputs)} outputs have {len(references)} references")
        streams = itertools.zip_longest(*map(alternatives, references))
        return {"bleu": BLEU().corpus_score(list(outputs), [list(s) for s in streams]).score}

    def statistics(self, outputs: Sequence[str], references: Sequence[Reference]) -> np.ndarray:
        """Matched and all n-grams of each order, and both lengths."""
        bleu = BLEU(effective_order=True)  # sacreBLEU's recommendation for single texts
        pairs = zip(outputs, map(alternatives, references), strict=True)
        scores = [bleu.sentence_score(output, list(texts)) for output, texts in pairs]
        rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]
        return np.array(rows, np.int64)

    def of_statistics(self, sums: np.ndarray, count: float) -> dict[str, float]:
        *grams, outputs, references = map(int, sums)
        half = len(grams) // 2
        score = BLEU.compute_bleu(grams[:half], grams[half:], outputs, references, "exp")
        return {"bleu": score.score}

    @property
    def signature(self) -> str:
        return str(BLEU(references=[["one reference"]]).get_signature())


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
