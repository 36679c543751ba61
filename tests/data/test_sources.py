"""The common door of all sources: Python rows, the grammar, and refused descriptions."""

from __future__ import annotations

import itertools

import pytest

from specjax.data import grammar
from specjax.data.sources import KINDS, Source, read, rows
from specjax.runtime.errors import UserError


def test_python_rows_come_as_they_are_and_only_as_needed():
    endless = ({"n": n} for n in itertools.count())
    assert read(endless, 2) == [{"n": 0}, {"n": 1}]
    assert next(endless) == {"n": 2}
    with pytest.raises(UserError, match="row 2 is of type str; it must be a dict"):
        read([{}, "text"])


def test_the_grammar_gives_its_pairs_by_language():
    pairs = grammar.pairs("validation", 3)
    expected = [{"en": pair.source, "de": pair.target} for pair in pairs]
    assert read(Source("grammar", split="validation"), 3) == expected


@pytest.mark.parametrize(
    ("source", "count", "message"),
    [
        (Source("grammar"), 0, "count is 0; the grammar has no end, so it must be at least 1"),
        (Source("grammar", split="x"), 1, "split is 'x'; it must be one of test, validation, "),
    ],
)
def test_the_grammar_refuses_what_it_cannot_make(source, count, message):
    with pytest.raises(UserError, match=message):
        rows(source, count)


def test_descriptions_are_checked_when_they_are_made():
    with pytest.raises(UserError) as error:
        Source("csv", "x.csv")
    assert str(error.value) == f"kind is 'csv'; it must be one of {', '.join(KINDS)}"
    for kind in KINDS.keys() - {"grammar"}:
        with pytest.raises(UserError, match=f"^path is empty; kind '{kind}' reads "):
            Source(kind)
