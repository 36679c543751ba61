"""Copying drafters against a naive scan of the text."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from given_rows import context, list_rows, random_rows

from specjax.contracts.env import Env
from specjax.drafting.copying import MaxGram, PromptLookup, longest_match, text

LONGEST = 6
joined_text = jax.jit(text, static_argnames="spare")


@functools.partial(jax.jit, static_argnames="drafter")
def propose_tokens(drafter, made):
    return drafter.propose(Env({}, ()), {}, (), made, None)[0]


def naive_match(c: list[int], pattern: int, most: int) -> tuple[int, int]:
    """(position after the earliest longest match, its size) by docs/methods/max_gram.md."""
    best = (0, 0)
    for e in range(len(c) - 1):
        size = 0
        while size < min(pattern, most, e + 1) and c[e - size] == c[len(c) - 1 - size]:
            size += 1
        if size > best[1]:
            best = (e + 1, size)
    return best


def naive_max_gram(c, pattern, k, most, best) -> tuple[list[int], int]:
    """(draft, how many tokens were copied)."""
    c, start = list(c), len(c)
    while len(c) < start + k:
        begin, size = naive_match(c, pattern + len(c) - start, most)
        if not size:
            break
        c += c[begin : begin + start + k - len(c)]
    copied = len(c) - start
    while best is not None and len(c) < start + k:
        c.append(best[c[-1]])
    return c[start:], copied


@pytest.mark.parametrize("encoder", [True, False])
def test_text_is_the_prompt_followed_by_the_output(encoder):
    sources, outputs = random_rows(0)
    joined, length = joined_text(context(sources, outputs, encoder), spare=3)
    for row, (expected, _) in enumerate(list_rows(sources, outputs, encoder)):
        assert joined[row, : int(length[row])].tolist() == expected


@pytest.mark.parametrize("encoder", [True, False])
def test_longest_match_equals_a_naive_scan(encoder):
    sources, outputs = random_rows(1)
    made = context(sources, outputs, encoder)
    joined, length = joined_text(made, spare=0)
    rows = list(list_rows(sources, outputs, encoder))
    pattern = jnp.array([p for _, p in rows])
    begin, size = jax.jit(longest_match, static_argnums=3)(joined, length, pattern, LONGEST)
    for row, (c, p) in enumerate(rows):
        expected = naive_match(c, p, LONGEST)
        assert int(size[row]) == expected[1]
        if expected[1]:
            assert int(begin[row]) == expected[0]


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize("table", [True, False])
def test_max_gram_equals_a_naive_scan(encoder, table):
    sources, outputs = random_rows(2)
    best = np.array([1, 2, 0, 0, 0, 0, 0, 0, 0, 0], np.int32) if table else None
    drafter = MaxGram(7, table="ngram" if table else None, longest=LONGEST)
    made = context(sources, outputs, encoder)
    params = {"ngram": {"best": jnp.asarray(best)}} if table else {}
    draft = jax.jit(lambda c: drafter.propose(Env(params, ()), {}, (), c, None)[0])(made)
    for row, (c, p) in enumerate(list_rows(sources, outputs, encoder)):
        if encoder and not outputs[row]:
            c = [*c, 0]  # nothing to match: bigram steps follow the decoder start token
        expected, copied = naive_max_gram(c, p, 7, LONGEST, best)
        got = draft.tokens[row, : int(draft.length[row])].tolist()
        assert got == expected, (row, c, p)
        assert draft.drafted_by[row, : len(expected)].tolist() == [0] * copied + [1] * (
            len(expected) - copied
        )


@pytest.mark.parametrize("encoder", [True, False])
def test_prompt_lookup_proposes_what_followed_the_match(encoder):
    sources, outputs = random_rows(3)
    made = context(sources, outputs, encoder)
    drafter = PromptLookup(4, shortest=2, longest=LONGEST)
    draft = propose_tokens(drafter, made)
    for row, (c, p) in enumerate(list_rows(sources, outputs, encoder)):
        begin, size = naive_match(c, p, LONGEST)
        expected = c[begin : begin + 4] if size >= 2 else []
        assert draft.tokens[row, : int(draft.length[row])].tolist() == expected


def naive_copies(c: list[int], pattern: int, branches: int, k: int) -> list[list[int]]:
    """What follows the longest matches of at least 2, each begun with another token."""
    matches = []
    for end in range(len(c) - 1):
        size = 0
        while size < min(pattern, LONGEST, end + 1) and c[end - size] == c[len(c) - 1 - size]:
            size += 1
        matches.append((-size, end + 1))
    copies = {}
    for size, begin in sorted(matches):
        if size <= -2:
            copies.setdefault(c[begin], [*c[begin:], *(c[begin:] * k)][:k])
    return list(copies.values())[:branches]


@pytest.mark.parametrize("encoder", [True, False])
def test_a_tree_of_copies_follows_matches_that_go_on_otherwise(encoder):
    sources, outputs = random_rows(4)
    drafter = PromptLookup(4, shortest=2, longest=LONGEST, branches=2)
    draft = propose_tokens(drafter, context(sources, outputs, encoder))
    counts = set()
    for row, (c, p) in enumerate(list_rows(sources, outputs, encoder)):
        copies = naive_copies(c, p, 2, 4)
        counts.add(len(copies))
        assert draft.tokens[row, : int(draft.length[row])].tolist() == sum(copies, [])
        assert draft.parents[row].tolist() == [-1, 0, 1, 2, -1, 4, 5, 6]
    assert counts == {0, 1, 2}


def test_a_bad_match_range_is_named():
    with pytest.raises(ValueError, match="shortest"):
        PromptLookup(4, shortest=3, longest=2)
