"""The drafter contract: its static spec, its proposals, and what it learns of the outcome.

A drafter is a frozen, hashable dataclass. Arrays it needs (weights, n-gram tables) come in through
`env.params[name]`, thresholds that people sweep through `context.options`, and what outlives a
round is its memory: a pytree whose leaves have the row axis first, an argument and a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeVar

from flax import struct
from jaxtyping import Array, Bool, Int, Int32, Key

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env, Models
from specjax.contracts.reader import Reader
from specjax.contracts.rows import Caches
from specjax.contracts.rule import Reading, Rule, Verdict
from specjax.contracts.spec import Spec
from specjax.models.base import PromptReading

Memory = Any
Log = dict[str, Int32[Array, " B"]]
"""Numbers of one round by column name; the trace keeps a column for each."""

CALLS = "calls of "
"""Beginning of the columns that count runs per row, followed by `Call.part`."""

STOP = "stop"
"""Column: why drafting stopped, as `draft.STOP_REASONS` counts them."""

T = TypeVar("T")


class Outcome(struct.PyTreeNode):
    """The outcome of a draft."""

    draft: Draft
    reading: Reading  # of the target; its logits cost memory only where they are used
    verdict: Verdict
    committed: Int32[Array, " B"]  # tokens written
    accepted: Int32[Array, " B"]  # accepted drafted tokens within the row
    tested: Int32[Array, " B"]  # tested positions
    context: Context  # before the round


@dataclasses.dataclass(frozen=True)
class Alternative:
    """One way in which the rest of a text may be decoded."""

    drafter: Drafter
    reader: Reader


class Choice(Protocol):
    """A choice among drafters."""

    @property
    def members(self) -> tuple[Alternative, ...]:
        """The alternatives, each as it would draft alone."""
        ...

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the numbers per row that the caller must give (`Options.rows`)."""
        ...

    def needed_models(
        self, env: Env, context: Context, prompt: PromptReading, keys: Key[Array, " B"]
    ) -> dict[str, Bool[Array, ""]]:
        """Whether [] each model must read the prompts; unnamed models always do."""
        ...

    def alternatives(self, rows: int) -> tuple[Alternative, ...]:
        """Alternatives of which one (`chosen`) decodes `rows` rows to their end.

        Each has a loop of its own, with the memory of the choosing drafter. Empty: one loop.
        """
        ...

    def chosen(self, memory: Memory) -> Int[Array, ""]:
        """The alternative [] that is taken."""
        ...


class Drafter:
    """Anything that proposes tokens; this base has no memory and no models."""

    # Subclasses are dataclasses.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        fields.check(self)

    rule_type: ClassVar[type[Rule] | None] = None
    """The rule that its drafts need; None: any."""

    @property
    def spec(self) -> Spec:
        """All that is static."""
        raise NotImplementedError

    @property
    def reader(self) -> Reader | None:
        """How the target must read its drafts; None: whole."""
        return None

    @property
    def choice(self) -> Choice | None:
        """Itself, if it chooses among drafters; else None."""
        return None

    def of_models(self, models: Models) -> Drafter:
        """The drafter once the models are known; its `spec` may then be complete."""
        return self

    def check(self, env: Env) -> None:
        """Refuses resources that do not fit.

        Raises:
          ValueError: saying what does not.
        """

    def begin(
        self,
        env: Env,
        caches: Caches,
        context: Context,
        prompt: PromptReading,
        keys: Key[Array, " B"],
    ) -> tuple[Memory, Caches]:
        """The memory and the caches before the first round, once all models read the prompts.

        `prompt` is the target's reading of them. Folds `keys` [B].
        """
        return (), caches

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: Key[Array, " B"]
    ) -> tuple[Draft, Caches, Memory, Log]:
        """Proposes tokens after `context.tokens[:, :length]`; consumes `keys` [B]."""
        raise NotImplementedError

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        """The memory after a round."""
        return memory


def list_distinct(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """The distinct members of all groups, in order."""
    return tuple(dict.fromkeys(one for group in groups for one in group))


def count_calls(runs: dict[str, Int[Array, " B"]]) -> Log:
    """The columns of runs [B] by `Call.part`."""
    return {CALLS + part: count for part, count in runs.items()}
