"""The drafter contract: a static spec, proposals, and updates from outcomes.

A drafter is a frozen, hashable dataclass. Its arrays (weights, n-gram tables) are
`env.params[name]`, its traced thresholds are in `context.options`, and its state between rounds is
its memory: a pytree whose leaves have the row axis first, passed in and returned.
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
"""Logged numbers [B] of one round by column name; each is a column of the trace."""

CALLS = "calls of "
"""Prefix of the columns that count calls per row, followed by `Call.part`."""

STOP = "stop"
"""Column: why drafting stopped, an index into `draft.STOP_REASONS`."""

T = TypeVar("T")


class Outcome(struct.PyTreeNode):
    """A draft with the target's outputs, the verdict and what was committed."""

    draft: Draft
    reading: Reading  # of the target; unused logits cost no memory
    verdict: Verdict
    committed: Int32[Array, " B"]  # tokens committed
    accepted: Int32[Array, " B"]  # accepted drafted tokens within the row
    tested: Int32[Array, " B"]  # tested positions
    context: Context  # before the round


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A drafter and a reader with which the rest of a text may be decoded."""

    drafter: Drafter
    reader: Reader


class Choice(Protocol):
    """A choice among drafters."""

    @property
    def members(self) -> tuple[Alternative, ...]:
        """All alternatives, each as if it drafted alone."""
        ...

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the per-row inputs that the caller must give (`Options.rows`)."""
        ...

    def find_needed_models(
        self, env: Env, context: Context, prompt: PromptReading, keys: Key[Array, " B"]
    ) -> dict[str, Bool[Array, ""]]:
        """Returns whether [] each model must read the prompts; unnamed models always do."""
        ...

    def list_alternatives(self, rows: int) -> tuple[Alternative, ...]:
        """Lists the alternatives of which one decodes `rows` rows to their end.

        Each has a decode loop of its own, with the memory of the choosing drafter. Empty: one loop
        for all.
        """
        ...

    def get_alternative(self, memory: Memory) -> Int[Array, ""]:
        """Returns the index [] of the alternative to decode with."""
        ...


class Drafter:
    """Proposes tokens; this base class has no memory and no models."""

    # Subclasses are dataclasses.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        fields.check(self)

    rule_type: ClassVar[type[Rule] | None] = None
    """The rule that its drafts require; None: any."""

    @property
    def spec(self) -> Spec:
        """The static facts about its drafts and model calls."""
        raise NotImplementedError

    @property
    def reader(self) -> Reader | None:
        """The reader that its drafts require; None: the target reads them in one call."""
        return None

    @property
    def choice(self) -> Choice | None:
        """The drafter itself if it chooses among drafters, else None."""
        return None

    @property
    def can_skip_review(self) -> bool:
        """Whether drafts may be accepted without verification (`Draft.review`)."""
        return False

    def bind_models(self, models: Models) -> Drafter:
        """Returns the drafter completed with facts about the models, such as layer numbers."""
        return self

    def check(self, env: Env) -> None:
        """Checks that models and resources fit the drafter.

        Raises:
          ValueError: naming what does not fit.
        """

    def begin(
        self,
        env: Env,
        caches: Caches,
        context: Context,
        prompt: PromptReading,
        keys: Key[Array, " B"],
    ) -> tuple[Memory, Caches]:
        """Returns the memory and the caches before the first round, after prefill.

        `prompt` is the target's output on the prompts. Folds `keys` [B].
        """
        return (), caches

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: Key[Array, " B"]
    ) -> tuple[Draft, Caches, Memory, Log]:
        """Proposes tokens after `context.tokens[:, :length]`; consumes `keys` [B]."""
        raise NotImplementedError

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        """Updates the memory after a round."""
        return memory


def list_distinct(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """Lists the distinct members of all groups, in order."""
    return tuple(dict.fromkeys(one for group in groups for one in group))


def count_calls(runs: dict[str, Int[Array, " B"]]) -> Log:
    """Returns the log columns of call counts [B] by `Call.part`."""
    return {CALLS + part: count for part, count in runs.items()}
