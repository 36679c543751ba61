"""Fitted n-gram tables and the law that drafters draw from them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.drafting.ngram import bigram_logits
from specjax.errors import UserError
from specjax.training import ngram

V = 6
TEXT = [[2, 3, 2, 4, 1], [2, 3, 5, 1]]


def direct_bigram(previous: int, kept: int, delta: float = 1e-3) -> np.ndarray:
    """q = (n + delta) / (N + delta V) over the `kept` most frequent successors, written out."""
    counts = np.zeros(V)
    for row in TEXT:
        for a, b in zip([0, *row], row, strict=False):
            counts[b] += a == previous
    order = sorted(range(V), key=lambda i: (-counts[i], i))
    counts[order[kept:]] = 0
    return (counts + delta) / (counts.sum() + delta * V)


@pytest.mark.parametrize("kept", [1, 2, V])
@pytest.mark.parametrize("previous", [0, 2, 3])
def test_the_bigram_law_is_the_smoothed_count_of_what_the_table_keeps(previous, kept):
    table = ngram.fit(TEXT, V, start_token=0, successors=kept)
    law = np.exp(bigram_logits(table, jnp.array([previous]))[0])
    np.testing.assert_allclose(law, direct_bigram(previous, kept), rtol=1e-5)
    assert abs(law.sum() - 1) < 1e-5


def test_an_unseen_context_backs_off_to_the_unigram():
    table = ngram.fit(TEXT, V, start_token=0)
    law = np.exp(bigram_logits(table, jnp.array([1]))[0])
    counts = np.bincount(sum(TEXT, []), minlength=V) + 1e-3
    np.testing.assert_allclose(law, counts / counts.sum(), rtol=1e-5)


def test_the_best_successor_is_the_most_frequent_with_ties_to_the_lower_id():
    table = ngram.fit(TEXT, V, start_token=0)
    assert table["best"][2] == 3  # seen twice
    assert table["best"][3] == 2  # 2 and 5 once each
    assert table["best"][0] == 2  # the first token of both texts
    assert table["best"][1] == 2  # never followed: the unigram's best


def test_a_table_survives_its_file(tmp_path):
    table = ngram.fit(TEXT, V)
    ngram.save(table, tmp_path / "table.safetensors")
    again = ngram.load(tmp_path / "table.safetensors", V)
    assert all(np.array_equal(table[name], again[name]) for name in table)


@pytest.mark.parametrize(
    ("text", "named"), [([], "no tokens"), ([[]], "no tokens"), ([[7]], "vocabulary")]
)
def test_unusable_text_is_named(text, named):
    with pytest.raises(UserError, match=named):
        ngram.fit(text, V)


def test_a_table_of_another_vocabulary_is_refused(tmp_path):
    ngram.save(ngram.fit(TEXT, V), tmp_path / "table.safetensors")
    with pytest.raises(UserError, match="vocabulary of 6, the target has 9"):
        ngram.load(tmp_path / "table.safetensors", 9)
    with pytest.raises(UserError, match="cannot be read"):
        ngram.load(tmp_path / "nothing.safetensors", 9)
