"""Static facts about a drafter: the shape of its drafts and its model calls.

Costs and operation counts depend on these calls only.
"""

from __future__ import annotations

import dataclasses

STATES = " states"
"""Suffix of a `Call.part` that computes no logits."""

READ_OUT = " read-out"
"""Suffix of a `Call.part` that runs no layer."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a model."""

    model: str
    tokens: int  # fed
    logits: int  # fed tokens whose next-token logits are computed
    exit: int | None = None  # last decoder layer that runs; None: all run
    resume_from: int = 0  # leading decoder layers that an earlier call ran
    read_out: bool = False  # final norm and LM head only, on `tokens` states

    @property
    def part(self) -> str:
        """The name of the model, with the range of layers unless all run."""
        if self.read_out:
            return self.model + READ_OUT
        if self.exit is None and not self.resume_from:
            return self.model
        layers = f"{self.model}[{self.resume_from or ''}:{self.exit or ''}]"
        return layers if self.logits else layers + STATES


def list_parts(calls: tuple[Call, ...]) -> tuple[str, ...]:
    """Lists the distinct parts of models that the calls run (`Call.part`)."""
    return tuple(dict.fromkeys(call.part for call in calls))


UNBOUND = (-1,)
"""Placeholder of target layers that `Drafter.bind_models` sets from the model."""


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """Static facts about drafts that are trees."""

    levels: int  # most nodes on a path from the root
    parents: tuple[int, ...] = ()  # of the nodes, if all drafts have one shape
    shared: bool = False  # children of different nodes share draws
    fed: tuple[str, ...] = ()  # models other than the target that are fed nodes


@dataclasses.dataclass(frozen=True)
class Spec:
    """Static facts about a drafter."""

    width: int  # most tokens it proposes
    reach: int = 0  # slots after the committed tokens that it may touch
    calls: tuple[Call, ...] = ()  # of a draft of full width, in order
    models: tuple[str, ...] = ()  # whose caches it uses
    resources: tuple[str, ...] = ()  # parameter trees it reads other than models'
    writers: tuple[str, ...] = ()  # sources of its tokens; `Draft.drafted_by` is an index
    always: bool = False  # every draft has at least one token
    features: tuple[int, ...] = ()  # target layers whose states it observes
    columns: tuple[str, ...] = ()  # logged in addition to `STOP` and call counts
    tree: TreeSpec | None = None  # None: its drafts are chains

    @property
    def longest(self) -> int:
        """Maximum number of drafted tokens that can be accepted."""
        return self.tree.levels if self.tree else self.width

    @property
    def parents(self) -> tuple[int, ...]:
        """Parents of the nodes, if all its drafts are trees of one shape."""
        return self.tree.parents if self.tree else ()

    @property
    def touched_slots(self) -> int:
        """Maximum number of slots, from the pending token on, that a round writes to."""
        return max(self.width, self.reach) + 1
