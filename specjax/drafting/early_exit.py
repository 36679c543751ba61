"""The target's own first decoder layers as drafter, on its weights and its cache.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.5.2, under any rule
(docs/methods/early_exit.md). The target goes on from their states (`readers.resumed`).
"""

from __future__ import annotations

import dataclasses

from specjax.core import fields
from specjax.core.registry import DRAFTERS
from specjax.drafting.neural import StoppingEarly


@DRAFTERS.register("early_exit", example={"exit": 1, "length": 2})
@dataclasses.dataclass(frozen=True)
class EarlyExit(StoppingEarly):
    """Tokens of the target's own first `exit` decoder layers."""

    exit: int | None = fields.integer(help="decoder layers that draft")
    length: int = fields.draft_length(help="drafted tokens, at most")

    model = "target"
