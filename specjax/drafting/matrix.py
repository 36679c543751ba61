"""Cascades from names and the matrix K of Chen et al. (2024), Algorithm 1.

See docs/methods/cascade.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from specjax.drafting.base import MOST_DRAFTED, Drafter
from specjax.drafting.cascade import LAG, Horizontal, Reviewed, Stage
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.ngram import NGram
from specjax.drafting.none import Nothing
from specjax.drafting.sync import CHUNK
from specjax.verification.exact import SpeculativeSampling
from specjax.verification.lenient import Lenient

LAST: dict[str, Callable[..., Drafter]] = {
    "max_gram": MaxGram,
    "prompt_lookup": PromptLookup,
    "bigram": NGram,
    "unigram": functools.partial(NGram, order=1),
}
"""Drafters without a model that may be the last of a cascade, by name."""

SAMPLED, GREEDY = "sampled", "greedy"
"""How inner reviewers choose."""


def cascade(
    drafters: Sequence[str],
    matrix: Sequence[Sequence[int]],
    lenience: str | None = None,
    reviewers: str = SAMPLED,
) -> Horizontal:
    """The cascade of Chen et al. (2024) from its matrix K.

    Args:
      drafters: names of models from the largest to the smallest; the last may be one of `LAST`.
      matrix: K [n, n], upper triangular. Row 1 is the target's, row i + 1 that of drafter i where
        it reviews; entry j says how many tokens drafter j adds to that reviewer's draft.
      lenience: the traced option that holds l in (0, 1] of inner reviews (lambda = 1 / l); None: 1.
      reviewers: `SAMPLED` as the target's tokens are, or `GREEDY`, as in `Horizontal`.

    Raises:
      ValueError: when drafters or matrix do not fit.
    """
    rule = SpeculativeSampling() if lenience is None else Lenient(lenience, relative=True)
    drafters, matrix = tuple(drafters), tuple(tuple(row) for row in matrix)
    check_drafters(drafters)
    check_matrix(matrix, len(drafters))

    def draft_for(row: int) -> Drafter:
        stages, until = [], 0
        for column in range(row, len(drafters)):
            until += matrix[row][column]
            if matrix[row][column]:
                stages.append(Stage(member(column, matrix[row][column]), until))
        return Horizontal(tuple(stages)) if stages else Nothing()

    def member(column: int, tokens: int) -> Drafter:
        name = drafters[column]
        if name in LAST:
            return LAST[name](length=tokens)
        return Reviewed(name, draft_for(column + 1), rule, lag(column))

    def lag(column: int) -> int:
        """With the tokens that later models add in the same row, as far as a catch-up feeds."""
        models = [j for j in range(column + 1, len(drafters)) if drafters[j] not in LAST]
        added = [sum(row[j] for j in models) for row in matrix[: column + 1] if row[column]]
        return min(LAG + max(added, default=0), CHUNK)

    return dataclasses.replace(draft_for(0), greedy=reviewers == GREEDY)


def check_drafters(drafters: tuple[str, ...]) -> None:
    """Refuses names of which no cascade can be made.

    Raises:
      ValueError: saying what they must be.
    """
    early = [name for name in drafters[:-1] if name in LAST]
    if not drafters or early or len(set(drafters)) < len(drafters):
        raise ValueError(
            f"drafters is {drafters}; it must name different models, the largest first, of which"
            f" the last may be one of {', '.join(LAST)} instead"
        )


def check_matrix(matrix: tuple[tuple[int, ...], ...], count: int) -> None:
    """Refuses a matrix that is not upper triangular or with which nothing is drafted.

    Raises:
      ValueError: saying what it must be.
    """
    square = len(matrix) == count and all(len(row) == count for row in matrix)
    entries = [entry for row in matrix for entry in row]
    natural = all(isinstance(entry, int) and 0 <= entry <= MOST_DRAFTED for entry in entries)
    if not (square and natural and not any(any(row[:i]) for i, row in enumerate(matrix))):
        raise ValueError(
            f"matrix is {matrix}; for {count} drafters it must be {count} rows of {count} integers"
            f" from 0 to {MOST_DRAFTED}, those left of the diagonal 0"
        )
    if not any(matrix[0]):
        raise ValueError(f"matrix is {matrix}; its first row must have an entry above 0")
