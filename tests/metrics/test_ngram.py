"""Perplexity and accuracy of n-gram tables against formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specjax.metrics import ngram as evaluation
from specjax.runtime.errors import UserError
from specjax.training import ngram

V, DELTA = 6, 1e-3
TEXT = [[2, 3, 2, 4, 1], [2, 3, 5, 1]]
UNSEEN = [[3, 2, 3, 1], [4, 4, 1]]


def direct(start: list[int]) -> tuple[float, float, float]:
    """Both perplexities and the accuracy, token by token, without a table."""
    count = np.zeros((V, V))
    single = np.bincount(sum(TEXT, []), minlength=V)
    for row in TEXT:
        whole = [*start, *row]
        for a, b in zip(whole, whole[1:], strict=False):
            count[a, b] += 1
    unigram, bigram, right = [], [], []
    for row in UNSEEN:
        whole = [*start, *row]
        for a, b in zip(whole, whole[1:], strict=False):
            base = (single[b] + DELTA) / (single.sum() + DELTA * V)
            seen = count[a].sum()
            unigram.append(math.log(base))
            bigram.append(math.log((count[a, b] + DELTA) / (seen + DELTA * V) if seen else base))
            right.append(b == (count[a] if seen else single).argmax())
    return math.exp(-np.mean(unigram)), math.exp(-np.mean(bigram)), np.mean(right)


@pytest.mark.parametrize("start_token", [None, 0])
@pytest.mark.parametrize("entries", [1, 4 * V, 10**6])
def test_figures_are_those_of_the_formulas(start_token, entries, monkeypatch):
    """However few laws are held at once; float32 logarithms are good to 1e-5."""
    monkeypatch.setattr(evaluation, "LAW_ENTRIES", entries)
    table = ngram.fit(TEXT, V, start_token=start_token, smoothing=DELTA)
    found = evaluation.predict_tokens(table, UNSEEN, start_token)
    unigram, bigram, accuracy = direct([] if start_token is None else [start_token])
    assert found["tokens"] == (7 if start_token == 0 else 5)
    assert found["unigram_perplexity"] == pytest.approx(unigram, rel=1e-5)
    assert found["bigram_perplexity"] == pytest.approx(bigram, rel=1e-5)
    assert found["bigram_accuracy"] == accuracy


def test_text_without_neighbors_is_refused():
    table = ngram.fit(TEXT, V)
    with pytest.raises(UserError, match="no two tokens"):
        evaluation.predict_tokens(table, [[2], [3]], None)
