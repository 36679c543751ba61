"""BLEU, by sacreBLEU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

from sacrebleu.metrics import BLEU

from specjax.core.registry import METRICS
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

    @property
    def signature(self) -> str:
        return str(BLEU(references=[["one reference"]]).get_signature())
