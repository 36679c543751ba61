"""What is static about a drafter: the shape of its drafts, and the calls of models they take.

The cost and the operations of a run depend on these calls alone.
"""

from __future__ import annotations

import dataclasses

STATES = " states"
"""Ending of a `Call.part` that computes no logits."""

READ_OUT = " read-out"
"""Ending of a `Call.part` that runs no layer."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One run of a model."""

    model: str
    tokens: int  # fed
    logits: int  # fed tokens whose next-token logits are computed
    exit: int | None = None  # decoder layers after which it ends; None: all
    resume_from: int = 0  # decoder layers that an earlier call ran
    read_out: bool = False  # final norm and output layer alone, on so many states as `tokens`

    @property
    def part(self) -> str:
        """The name of the model, with the layers that run if not all do."""
        if self.read_out:
            return self.model + READ_OUT
        if self.exit is None and not self.resume_from:
            return self.model
        layers = f"{self.model}[{self.resume_from or ''}:{self.exit or ''}]"
        return layers if self.logits else layers + STATES


def parts(calls: tuple[Call, ...]) -> tuple[str, ...]:
    """The distinct parts of models that the calls run (`Call.part`)."""
    return tuple(dict.fromkeys(call.part for call in calls))


LATER = (-1,)
"""`Spec.features` of a drafter whose layers are known with its models (`Drafter.of_models`)."""


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """What is static about drafts that are trees."""

    levels: int  # most nodes on a path from the root
    parents: tuple[int, ...] = ()  # of the nodes, where all drafts have the same
    shared: bool = False  # children of different nodes share draws
    fed: tuple[str, ...] = ()  # models, other than the target, that are fed nodes (`Draft.slots`)


@dataclasses.dataclass(frozen=True)
class Spec:
    """What is static about a drafter."""

    width: int  # most tokens it proposes
    reach: int = 0  # how far beyond the committed tokens it touches caches or buffers
    calls: tuple[Call, ...] = ()  # of a draft of full width, in their order
    models: tuple[str, ...] = ()  # whose caches it uses
    resources: tuple[str, ...] = ()  # parameter trees it reads that are no model's
    writers: tuple[str, ...] = ()  # who writes its tokens; `Draft.drafted_by` points into this
    always: bool = False  # every draft has a token
    features: tuple[int, ...] = ()  # target layers whose states it observes after every round
    columns: tuple[str, ...] = ()  # numbers that it logs, other than `STOP` and runs of its calls
    tree: TreeSpec | None = None  # None: its drafts are chains

    @property
    def longest(self) -> int:
        """Most drafted tokens that may be accepted."""
        return self.tree.levels if self.tree else self.width

    @property
    def parents(self) -> tuple[int, ...]:
        """Of the nodes of all its drafts, where these are trees of one shape."""
        return self.tree.parents if self.tree else ()

    @property
    def touched_slots(self) -> int:
        """Most slots, the pending token's first, that a round writes to."""
        return max(self.width, self.reach) + 1
