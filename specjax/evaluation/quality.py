"""Quality of outputs against references."""

from __future__ import annotations

from collections.abc import Sequence

import sacrebleu


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU in percent (sacreBLEU defaults: 13a, mixed case)."""
    return float(sacrebleu.corpus_bleu(list(outputs), [list(references)]).score)


METRICS = {"bleu": bleu}
