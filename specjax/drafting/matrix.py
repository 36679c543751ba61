"""Cascades from names and the matrix K of Chen et al. (2024), Algorithm 1.

The mathematics is in docs/methods/cascade.md.
"""

from __future__ import annotations

import dataclasses
import functools

import jax

from specjax.contracts import fields
from specjax.contracts.catching_up import CHUNK
from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Drafter, Log, Memory, Outcome
from specjax.contracts.env import Env
from specjax.contracts.fields import MOST_DRAFTED
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec
from specjax.drafting.cascade import LAG, Horizontal, ReviewedDrafter, Stage
from specjax.drafting.copying import PromptLookup
from specjax.drafting.nothing import Nothing
from specjax.models.base import PromptReading
from specjax.verification.lenient import Lenient
from specjax.verification.speculative_sampling import SpeculativeSampling

SAMPLED, GREEDY = REVIEWERS = ("sampled", "greedy")
"""Sampling modes of inner reviewers."""

BRANCHED = ("prompt_lookup", "bigram", "unigram")
"""Drafters whose drafts with `branches` above 1 are trees, each reviewed by itself."""

EXAMPLE = {"drafters": ("drafter", "max_gram"), "matrix": ((2, 2), (0, 1))}


@DRAFTERS.register("cascade", example=EXAMPLE)
@dataclasses.dataclass(frozen=True)
class Cascade(Drafter):
    """Drafters that review and extend each other's drafts, by a matrix K.

    `drafters` names models from the largest to the smallest; the last may be a drafter without a
    model (`last_drafters`). Row 1 of `matrix` [n, n], upper triangular, is the target's, row i + 1
    that of drafter i where it reviews; entry j is the number of tokens that drafter j adds to that
    reviewer's draft, or the depth of a tree. Each of its `branches` is a chain from the root.

    Raises:
      ValueError: when drafters or matrix do not fit.
    """

    drafters: tuple[str, ...] = fields.listing(
        "a list of names", lambda x: isinstance(x, str), help="models, the largest first"
    )
    matrix: tuple[tuple[int, ...], ...] = fields.listing(
        "a list of rows", lambda x: isinstance(x, tuple), help="tokens that each adds (K)"
    )
    lenience: str | None = fields.number(
        None, bounds="(0, 1]", traced="lenience", help="l of inner reviews (1 / lambda); off: 1"
    )
    reviewers: str = fields.choice(REVIEWERS, SAMPLED, help="how inner reviewers choose")
    branches: int = fields.integer(1, help="continuations of a last drafter; above 1: trees")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_drafters(self.drafters)
        check_matrix(self.matrix, len(self.drafters))
        if self.branches > 1:
            check_tree(self)
        _ = self.combined  # raises for members that do not fit

    @functools.cached_property
    def combined(self) -> Horizontal:
        """The combined drafter of the matrix."""
        return Horizontal(self._stages(0), greedy=self.reviewers == GREEDY)

    def _make_reviewed_drafter(self, row: int) -> Drafter:
        """The drafter below the reviewer of a row other than the first."""
        if self.branches > 1 and self.matrix[row][-1]:
            return self._tree(self.matrix[row][-1])
        stages = self._stages(row)
        return Horizontal(stages) if stages else Nothing()

    def _stages(self, row: int) -> tuple[Stage, ...]:
        stages, until = [], 0
        for column in range(row, len(self.drafters)):
            until += self.matrix[row][column]
            if self.matrix[row][column]:
                stages.append(Stage(self._member(column, self.matrix[row][column]), until))
        return tuple(stages)

    def _member(self, column: int, tokens: int) -> Drafter:
        name = self.drafters[column]
        if name in last_drafters():
            return DRAFTERS[name].cls(length=tokens)
        lenient = self.lenience and Lenient(self.lenience, relative=True)
        rule = lenient or SpeculativeSampling()
        return ReviewedDrafter(
            name, self._make_reviewed_drafter(column + 1), rule, self._lag(column)
        )

    def _tree(self, levels: int) -> Drafter:
        if self.drafters[-1] == "prompt_lookup":
            return PromptLookup(levels, branches=self.branches)
        widths = (self.branches, *(1,) * (levels - 1))
        return DRAFTERS[self.drafters[-1]].cls(widths=widths)

    def _lag(self, column: int) -> int:
        """Adds the tokens of later models in the same row, up to a catch-up call's width."""
        names = self.drafters
        last = last_drafters()
        models = [j for j in range(column + 1, len(names)) if names[j] not in last]
        added = [sum(row[j] for j in models) for row in self.matrix[: column + 1] if row[column]]
        return min(LAG + max(added, default=0), CHUNK)

    @property
    def spec(self) -> Spec:
        return self.combined.spec

    def check(self, env: Env) -> None:
        """Refuses more branches than there are tokens to begin them.

        Raises:
          ValueError: saying how many there are.
        """
        tokens = env.target.info.vocab_size
        if self.drafters[-1] != "prompt_lookup" and self.branches > tokens:
            raise ValueError(
                f"branches is {self.branches}; it must be at most {tokens:,}, the vocabulary"
            )

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[Memory, Caches]:
        return self.combined.begin(env, caches, context, prompt, keys)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        return self.combined.propose(env, caches, memory, context, keys)

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        return self.combined.observe(memory, outcome)


def last_drafters() -> tuple[str, ...]:
    """Registered drafters of chains with only a length and without a model."""
    found = []
    for name, entry in DRAFTERS.items():
        known = fields.get_config_fields(entry.cls)
        others = (field for own, field in known.items() if own != "length")
        if "length" in known and not any(field.required for field in others):
            spec = entry.cls(length=1).spec
            if not (spec.models or spec.features):
                found.append(name)
    return tuple(found)


def check_drafters(drafters: tuple[str, ...]) -> None:
    """Refuses invalid names of a cascade's drafters.

    Raises:
      ValueError: saying what they must be.
    """
    last = last_drafters()
    early = [name for name in drafters[:-1] if name in last]
    if not drafters or early or len(set(drafters)) < len(drafters):
        raise ValueError(
            f"drafters is {drafters}; it must name different models, the largest first, of which"
            f" the last may be one of {', '.join(last)} instead"
        )


def check_matrix(matrix: tuple[tuple[int, ...], ...], count: int) -> None:
    """Refuses a matrix that is not upper triangular or drafts nothing.

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


def check_tree(cascade: Cascade) -> None:
    """Refuses trees that are not reviewed by themselves, or not exactly.

    Raises:
      ValueError: saying what must be.
    """
    name, matrix = cascade.drafters[-1], cascade.matrix
    if name not in BRANCHED:
        raise ValueError(
            f"branches is {cascade.branches} and the last drafter {name!r}; it must be one of"
            f" {', '.join(BRANCHED)} to draft trees"
        )
    mixed = [row for row in matrix if row[-1] and any(row[:-1])]
    if matrix[0][-1] or mixed:
        raise ValueError(
            f"matrix is {matrix}; {name!r} drafts trees by branches, so in the first row its entry"
            " must be 0, and in another where it is not it must be the only one"
        )
    if cascade.lenience is not None:
        raise ValueError(f"lenience is given; it must be off where {name!r} drafts trees")
    if cascade.branches * max(row[-1] for row in matrix) > MOST_DRAFTED:
        raise ValueError(
            f"branches is {cascade.branches}; the tree of {name!r} must have at most"
            f" {MOST_DRAFTED:,} nodes"
        )
