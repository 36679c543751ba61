"""Fitted n-gram tables and the law that drafters draw from them."""

from __future__ import annotations

import itertools
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.drafting.ngram import bigram_logits
from specjax.runtime.errors import UserError
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
    distribution = np.exp(bigram_logits(table, jnp.array([previous]))[0])
    np.testing.assert_allclose(distribution, direct_bigram(previous, kept), rtol=1e-5)
    assert abs(distribution.sum() - 1) < 1e-5


def test_an_unseen_context_backs_off_to_the_unigram():
    table = ngram.fit(TEXT, V, start_token=0)
    distribution = np.exp(bigram_logits(table, jnp.array([1]))[0])
    counts = np.bincount(sum(TEXT, []), minlength=V) + 1e-3
    np.testing.assert_allclose(distribution, counts / counts.sum(), rtol=1e-5)


def test_the_best_successor_is_the_most_frequent_with_ties_to_the_lower_id():
    table = ngram.fit(TEXT, V, start_token=0)
    assert table["best"][2] == 3  # seen twice
    assert table["best"][3] == 2  # 2 and 5 once each
    assert table["best"][0] == 2  # the first token of both texts
    assert table["best"][1] == 2  # never followed: the unigram's best


@pytest.mark.parametrize("chunk", [1, 7, 100, 10**6])
@pytest.mark.parametrize("start_token", [None, 0])
def test_counting_by_chunks_is_counting_at_once(chunk, start_token):
    """Against plain Python counters; a thousand sequences merge many runs of every size."""
    generator = np.random.default_rng(0)
    text = [generator.geometric(0.1, n).clip(max=49) for n in generator.integers(1, 9, 1000)]
    counts = ngram.count(iter(text), 50, start_token=start_token, chunk=chunk)
    head = [] if start_token is None else [start_token]
    pairs = Counter(p for row in text for p in itertools.pairwise([*head, *row.tolist()]))
    codes = {int(code): int(n) for code, n in zip(counts.pairs, counts.times, strict=True)}
    assert codes == {50 * a + b: n for (a, b), n in pairs.items()}
    assert np.all(np.diff(counts.pairs) > 0)
    np.testing.assert_array_equal(counts.unigram, np.bincount(np.concatenate(text), minlength=50))
    assert (counts.sequences, counts.tokens) == (1000, sum(map(len, text)))


def test_counting_reads_no_further_than_a_chunk():
    """The sequences of a stream are counted as they come, not gathered first."""

    def stream():
        yield from ([3] * 10 for _ in range(5))
        yield [V]

    with pytest.raises(UserError, match="ids run from 6 to 6"):  # the others were counted before
        ngram.count(stream(), V, chunk=10)


def test_a_narrowed_table_is_the_table_of_fewer_ids():
    """Within the rounding of float32 logarithms."""
    wide, fitted = ngram.fit(TEXT, V + 3, start_token=0), ngram.fit(TEXT, V, start_token=0)
    narrowed = ngram.narrow(wide, V)
    assert narrowed.keys() == fitted.keys()
    for name in fitted:
        np.testing.assert_allclose(narrowed[name], fitted[name], rtol=1e-6, err_msg=name)
    with pytest.raises(UserError, match="id 5 was seen"):
        ngram.narrow(fitted, 5)


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


def test_a_published_list_of_successors_is_a_table(tmp_path):
    file = tmp_path / "greedy.json"
    file.write_text("[3, 0, 4, 2]")  # the target's last two ids are padding
    table = ngram.load(file, V)
    assert table["best"].tolist() == [3, 0, 4, 2, 0, 0]
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in table.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in ngram.shapes(V, 1).items()
    }
    distribution = np.exp(bigram_logits(table, jnp.array([2, 5])))
    assert distribution[0].argmax() == 4 and distribution[0, 4] > 0.99
    np.testing.assert_allclose(distribution[1], 1 / V, rtol=1e-6)
    assert ngram.narrow(table, 5)["best"].tolist() == [3, 0, 4, 2, 0]


@pytest.mark.parametrize("content", ["[6]", "[-1]", "[0, 0, 0, 0, 0, 0, 0]", "{}", "[1.5]", "["])
def test_a_list_of_something_else_is_refused(content, tmp_path):
    file = tmp_path / "greedy.json"
    file.write_text(content)
    with pytest.raises(UserError, match="greedy.json' (is no list of at most 6 ids|cannot be)"):
        ngram.load(file, V)
