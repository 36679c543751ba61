"""The fields of chains that every proposer has, and what ends a chain before its length.

B batch rows, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.drafter import Drafter
from specjax.drafting.adaptive_length import (
    ADAPT,
    CATCHING_UP,
    COST,
    EXPECTED,
    FIXED,
    OVERHEAD,
    TIMES,
    VERIFICATION,
    check_adaptive,
    cost_field,
    times_field,
)
from specjax.drafting.online import DIVERGENCE, check_online, divergence_field, rate_field
from specjax.sampling import compute_confidence, compute_entropy

REFUSED_BY_TREES: dict[str, Any] = {
    "confidence": None,
    "entropy": None,
    "adapt": FIXED,
    "online_rate": None,
}
"""Fields of chains, and their values when unset."""

CHAIN_FIELDS = (
    *(*REFUSED_BY_TREES, COST, VERIFICATION, OVERHEAD, EXPECTED),
    *(TIMES, CATCHING_UP, DIVERGENCE),
)
"""Those and the fields that need one of them: a tree has none."""


@dataclasses.dataclass(frozen=True)
class ChainFields(Drafter):
    """A drafter with the fields of chains.

    `adapt` shortens a chain by the expectation of `adaptive_length`, from the acceptance in the
    row's memory, or by that of all rows (`by_load`). `online_rate` names the option by which the
    memory's bias on the logits follows the target (`online`).
    """

    _: dataclasses.KW_ONLY
    confidence: str | None = fields.number(
        None,
        bounds="[0, 1]",
        traced="confidence",
        help="largest plain probability below which nothing more is drafted",
    )
    entropy: str | None = fields.number(
        None,
        bounds="[0, inf)",
        traced="entropy",
        help="nats of the plain distribution above which nothing more is drafted",
    )
    adapt: str = fields.choice(ADAPT, FIXED, help="how long a draft gets")
    cost: str = cost_field(COST)
    verification: str = cost_field(VERIFICATION)
    overhead: str = cost_field(OVERHEAD)
    acceptance: str = cost_field(EXPECTED)
    times: str | None = times_field()
    catching_up: str = cost_field(CATCHING_UP)
    online_rate: str | None = rate_field()
    online_divergence: str = divergence_field()

    @property
    def can_stop(self) -> bool:
        """Whether a chain may end before its length, even before its first token: `is_sure`."""
        return self.confidence is not None or self.entropy is not None

    def is_sure(
        self, logits: jax.Array, numbers: Mapping[str, jax.Array], state: Any = None
    ) -> jax.Array:
        """Whether [...] a chain that `can_stop` goes on with a token of the logits [..., V].

        Asked before the token is drawn, which keeps speculative sampling lossless. `state` is that
        of a proposer which is fed.
        """
        checks = []
        if self.confidence is not None:
            checks.append(self.estimate_acceptance(logits, state) >= numbers[self.confidence])
        if self.entropy is not None:
            checks.append(compute_entropy(logits) <= numbers[self.entropy])
        return functools.reduce(jnp.logical_and, checks)

    def estimate_acceptance(self, logits: jax.Array, state: Any) -> jax.Array:
        """How sure it is [B] of a token of a chain before it is drawn, from logits [B, V]."""
        return compute_confidence(logits)

    @classmethod
    def check_values(cls, values: Mapping[str, Any]) -> None:
        check_adaptive(values)
        check_online(values)
