"""The suffix drafter against a brute-force search of texts written out on the host."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from given_rows import context, list_rows, random_rows
from scripted import PrefixModel

from specjax.contracts.draft import LENGTH, NO_MATCH, STOPPED
from specjax.contracts.drafter import STOP
from specjax.contracts.env import Env
from specjax.data.corpus import DEPTH, Corpus, order
from specjax.drafting.suffix import Suffix, suffix_ranges
from specjax.runtime.errors import UserError

LONGEST, K, PLACES = 4, 5, 6
NUMBERS = {"factor": 1.5, "floor": 0.1}
DECODER_ONLY = PrefixModel(10, start_token=None)


def in_row(c: list[int], pattern: int) -> tuple[int, list[list[int]]]:
    """Size of the longest match, and K tokens behind its last places, the newest first."""
    sizes = []
    for end in range(len(c) - 1):
        size = 0
        while size < min(pattern, LONGEST, end + 1) and c[end - size] == c[len(c) - 1 - size]:
            size += 1
        sizes.append(size)
    most = max(sizes, default=0)
    begins = [end + 1 for end, size in enumerate(sizes) if size == most > 0][::-1]
    return most, [[*c[b:], *(c[b:] * K)][:K] for b in begins[:PLACES]]


def in_texts(c: list[int], texts: list[list[int]]) -> tuple[int, list[list[int]]]:
    """The same in other texts, -1 behind their ends, evenly from all in alphabetic order."""
    for size in range(min(LONGEST, len(c)), 0, -1):
        behind = []
        for t in texts:
            padded = [*t, *[-1] * DEPTH]
            for b in range(size, len(t) + 1):
                if t[b - size : b] == c[len(c) - size :]:
                    behind.append(padded[b : b + K])
        if behind:
            # Places that agree in K tokens give the same draft: their order is of no matter.
            behind.sort()
            n = len(behind)
            kept = range(n) if n <= PLACES else (step * n // PLACES for step in range(PLACES))
            return size, [behind[i] for i in kept]
    return 0, []


def best(found: list[tuple[int, list[list[int]]]]) -> tuple[list[int], int]:
    """The draft of the highest score, and which text it is from."""
    chosen, most, where = [], 0.0, 0
    for number, (size, behind) in enumerate(found):
        for tokens in behind:
            chance, score, drafted, before = 1.0, 0.0, [], behind
            for k in range(K):
                after = [other for other in before if other[k] == tokens[k]]
                chance *= len(after) / (len(before) + 0.5)
                cut = tokens[k] < 0 or k >= int(NUMBERS["factor"] * size)
                if cut or chance < NUMBERS["floor"]:
                    break
                drafted, score, before = [*drafted, tokens[k]], score + chance, after
            if score > most + 1e-6:
                chosen, most, where = drafted, score, number
    return chosen, where


@functools.partial(jax.jit, static_argnames="drafter")
def propose_tokens(drafter: Suffix, params, made):
    draft, _, _, log = drafter.propose(Env(params, ()), {}, (), made, None)
    return draft, log


def draft_rows(made, drafter: Suffix, params) -> tuple[list[list[int]], np.ndarray, np.ndarray]:
    """Drafts of every row, who wrote them, and why they stop."""
    draft, log = propose_tokens(drafter, params, made)
    rows = [row[:n].tolist() for row, n in zip(draft.tokens, draft.length, strict=True)]
    return rows, np.asarray(draft.drafted_by), np.asarray(log[STOP])


@pytest.mark.parametrize("corpus", [True, False])
@pytest.mark.parametrize("encoder", [True, False])
def test_drafts_equal_those_of_a_brute_force_search(encoder, corpus):
    sources, outputs = random_rows(5, rows=120)
    texts = [row for row in random_rows(6, rows=9)[0] if row]
    model = PrefixModel(10) if encoder else DECODER_ONLY
    held = Corpus(model, 128)
    held.add(texts)
    texts = [[0, *row] for row in texts] if encoder else texts
    drafter = Suffix(K, corpus, longest=LONGEST, places=PLACES)
    made = context(sources, outputs, encoder, NUMBERS)
    got, writers, stops = draft_rows(made, drafter, {"corpus": held.table()} if corpus else {})
    seen = set()
    for row, (c, p) in enumerate(list_rows(sources, outputs, encoder)):
        found = [in_row(c, p)]
        if corpus:
            found.append(in_texts([0, *outputs[row]] if encoder else c, texts))
        expected, where = best(found)
        assert got[row] == expected, (row, c, p)
        if expected:
            assert set(writers[row, : len(expected)]) == {where}
        matched = any(size for size, _ in found)
        stop = LENGTH if len(expected) == K else STOPPED if matched else NO_MATCH
        assert stops[row] == stop
        seen.add((len(expected), where))
    assert {length for length, _ in seen} >= {1, 3, 4} | ({0} if not corpus else set())
    assert {where for _, where in seen} == ({0, 1} if corpus else {0})


def test_a_row_keeps_its_draft_whoever_is_beside_it():
    sources, outputs = random_rows(7, rows=8)
    held = Corpus(DECODER_ONLY, 64)
    held.add(sources[:3])
    params, drafter = {"corpus": held.table()}, Suffix(K, True)
    whole = draft_rows(context(sources, outputs, False, NUMBERS), drafter, params)[0]
    for row in range(8):
        baseline = context(sources[row : row + 1], outputs[row : row + 1], False, NUMBERS)
        assert draft_rows(baseline, drafter, params)[0] == [whole[row]]


def test_the_end_of_a_text_is_drafted_and_nothing_behind_it():
    held = Corpus(DECODER_ONLY, 32)
    held.add([[3, 4, 5, 1], [6, 7, 8]])
    made = context([[3, 4], [7], [8], [2]], [[], [], [], []], False, NUMBERS | {"factor": 9.0})
    got, *_ = draft_rows(made, Suffix(K, True), {"corpus": held.table()})
    assert got == [[5, 1], [8], [], []]


def test_numbers_may_be_swept_and_lengthen_drafts():
    drafter = Suffix(8)
    lengths = []
    for factor, floor in ((0.5, 0.0), (1.0, 0.0), (3.0, 0.0), (3.0, 0.3), (3.0, 1.0)):
        made = context([[3, 4, 5, 6, 7, 3, 4]], [[]], False, {"factor": factor, "floor": floor})
        lengths.append(len(draft_rows(made, drafter, {})[0][0]))
    assert lengths == [1, 2, 6, 2, 0]  # one place: a chance of 2/3 for each token


@pytest.mark.parametrize("size", [1, 2, 5, 63, 200])
def test_suffixes_are_in_alphabetic_order(size):
    tokens = np.random.default_rng(size).integers(0, 2, size)
    expected = sorted(range(size), key=lambda at: (tokens[at : at + DEPTH].tolist(), at))
    assert order(tokens).tolist() == expected


def test_ranges_hold_exactly_the_suffixes_that_begin_so():
    rng = np.random.default_rng(0)
    held = Corpus(DECODER_ONLY, 256)
    held.add([rng.integers(0, 3, n).tolist() for n in rng.integers(1, 30, 9)])
    table = held.table()
    tokens, places = (np.asarray(table[name]) for name in ("tokens", "order"))
    rows = rng.integers(0, 3, (40, 12))
    length = rng.integers(1, 13, 40)
    first, end = suffix_ranges(table, jnp.asarray(rows), jnp.asarray(length), 6)
    for row in range(40):
        for size in range(1, 7):
            wanted = rows[row, length[row] - size : length[row]].tolist()
            begins = [b for b in range(257 - size) if tokens[b : b + size].tolist() == wanted]
            if size > length[row]:
                begins = []
            got = places[first[row, size - 1] : end[row, size - 1]]
            assert sorted(got.tolist()) == begins


def test_a_corpus_keeps_the_newest_texts_and_its_shape():
    held = Corpus(DECODER_ONLY, 16)
    shapes = set()
    for text in ([2] * 9, [3, 4, 5], [6] * 5, [], [7, 8]):
        held.add([text])
        shapes |= {leaf.shape for leaf in held.table().values()}
        assert set(np.asarray(held.table()["tokens"]).tolist()) >= {-1, *text}
    assert shapes == {(16,)} and len(held) == 3
    kept = np.asarray(held.table()["tokens"]).tolist()
    assert kept == [-1, 3, 4, 5, -1, 6, 6, 6, 6, 6, -1, 7, 8, -1, -1, -1]
    held.add([list(range(10)) * 2])
    assert np.asarray(held.table()["tokens"]).tolist() == [-1, *range(6, 10), *range(10), -1]


def test_a_corpus_refuses_ids_that_are_no_tokens():
    with pytest.raises(UserError, match="from -1 to 3; they must be from 0 to 9"):
        Corpus(DECODER_ONLY, 16).add([[3, -1]])
    with pytest.raises(UserError, match="capacity is 3"):
        Corpus(DECODER_ONLY, 3)


def test_what_is_no_corpus_is_refused():
    for wrong in ({"best": jnp.zeros(3)}, {"tokens": jnp.zeros(3), "order": jnp.zeros(4)}):
        with pytest.raises(ValueError, match="table of a specjax.Corpus"):
            Suffix(3, True).check(Env({"corpus": wrong}, ()))
