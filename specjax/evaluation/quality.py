"""Quality of outputs against references: scores in percent, by the name of a metric."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np
from sacrebleu.metrics import BLEU

from specjax.data.text import Reference

Metric = Callable[[Sequence[str], Sequence[Reference]], dict[str, float]]

_ROUGES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:\$-?)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)")
_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])\s+")
_CHOICES = (  # the clearest first
    re.compile(r"(?i:answer(?:\s+is)?)[\s:(*]*([A-D])\b"),
    re.compile(r"\(([A-D])\)"),
    re.compile(r"^\W*([A-D])(?:[.):]|\W*$)"),
)


def bleu(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Corpus BLEU (sacreBLEU defaults: 13a, mixed case)."""
    streams = itertools.zip_longest(*map(alternatives, references))
    return {"bleu": BLEU().corpus_score(list(outputs), [list(s) for s in streams]).score}


def rouge(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Mean ROUGE F1 with stemming; Lsum compares sentences, the best reference counts."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(_ROUGES, use_stemmer=True)
    found = [
        scorer.score_multi([sentences(text) for text in alternatives(reference)], sentences(output))
        for output, reference in zip(outputs, references, strict=True)
    ]
    return {name: 100 * float(np.mean([f[name].fmeasure for f in found])) for name in _ROUGES}


def exact_match(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Outputs whose first line is a reference, but for case, punctuation and articles."""

    def right(output: str, reference: str) -> bool:
        return bare(output.strip().partition("\n")[0]) == bare(reference)

    return {"exact_match": _percent(right, outputs, references)}


def final_number(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Outputs whose last number equals the last one of a reference."""

    def right(output: str, reference: str) -> bool:
        return (number := last_number(output)) is not None and number == last_number(reference)

    return {"final_number": _percent(right, outputs, references)}


def choice(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Outputs that choose the letter of the reference."""
    return {"choice": _percent(lambda o, r: chosen(o) == r, outputs, references)}


def none(outputs: Sequence[str], references: Sequence[Reference | None]) -> dict[str, float]:
    """No score."""
    return {}


METRICS: dict[str, Metric] = {
    "bleu": bleu,
    "rouge": rouge,
    "exact_match": exact_match,
    "final_number": final_number,
    "choice": choice,
    "none": none,
}


def signature(metric: str) -> str:
    """What makes scores of a metric comparable, given one reference each; empty for plain ones."""
    if metric == "bleu":
        return str(BLEU(references=[["one reference"]]).get_signature())
    if metric == "rouge":
        return f"rouge-score:{metadata.version('rouge-score')}|stemmer:yes|lsum:sentence ends"
    return ""


def alternatives(reference: Reference) -> tuple[str, ...]:
    """All references of an output."""
    return (reference,) if isinstance(reference, str) else reference


def sentences(text: str) -> str:
    """The text with one sentence per line; sentences end at line ends and . ! ? before a space."""
    return "\n".join(part for part in _SENTENCE_END.split(text) if part.strip())


def bare(text: str) -> str:
    """Lower-case words without punctuation and English articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(word for word in plain.split() if word not in ("a", "an", "the"))


def last_number(text: str) -> float | None:
    """The last number of a text; thousands may have commas, and a $ may come first."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "").replace("$", "")) if found else None


def chosen(text: str) -> str | None:
    """The letter that an answer to a question with four choices settles on last."""
    for pattern in _CHOICES:
        if found := pattern.findall(text):
            return found[-1]
    return None


def _percent(
    right: Callable[[str, str], bool], outputs: Sequence[str], references: Sequence[Reference]
) -> float:
    pairs = zip(outputs, references, strict=True)
    return 100 * float(np.mean([any(right(o, r) for r in alternatives(ref)) for o, ref in pairs]))
