"""A language model as drafter: what may end its drafts, and whether it learns between rounds.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specjax.core import fields
from specjax.core.registry import DRAFTERS
from specjax.drafting.adaptive_length import (
    ADAPT,
    COST,
    EXPECTED,
    FIXED,
    OVERHEAD,
    VERIFICATION,
    check_adaptive,
    cost_field,
)
from specjax.drafting.online import check_online, divergence_field, rate_field
from specjax.drafting.token_by_token import TokenByToken


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoppingEarly(TokenByToken):
    """What may end a draft before its length, and what is learned of each."""

    confidence: str | None = fields.number(
        None,
        bounds="[0, 1]",
        traced="confidence",
        help="largest plain probability below which nothing more is drafted",
    )
    adapt: str = fields.choice(ADAPT, FIXED, help="how long a draft gets")
    cost: str = cost_field(COST)
    verification: str = cost_field(VERIFICATION)
    overhead: str = cost_field(OVERHEAD)
    acceptance: str = cost_field(EXPECTED)
    online_rate: str | None = rate_field()
    online_divergence: str = divergence_field()

    @property
    def threshold(self) -> str | None:
        return self.confidence

    @classmethod
    def check_values(cls, values: Mapping[str, Any]) -> None:
        check_adaptive(values)
        check_online(values)


@DRAFTERS.register("neural", example={"length": 4})
@dataclasses.dataclass(frozen=True)
class Neural(StoppingEarly):
    """A small model's tokens, up to a confidence stop."""

    length: int = fields.draft_length(help="drafted tokens, at most")
    model: str = fields.name("drafter", help="the model that drafts")
