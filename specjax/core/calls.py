"""Calls of models; the cost and operations of a run depend on these alone."""

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
