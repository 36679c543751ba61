"""Adaptive draft length, from a row's acceptance so far and the value of another token.

Leviathan et al. (2023), Theorem 3.8 and section 3.5, evaluated inside the loop with the acceptance
seen so far. Times are in target steps of one token; traced options give the cost of a round and the
initial expectation. Every row decides for itself, so its output does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.verification.fitted import list_doubling_widths

FIXED, ACCEPTANCE, BREAK_EVEN = ADAPT = ("fixed", "acceptance", "break_even")
"""Draft length: the longest; the best one for the acceptance so far; up to the token where the
product of the largest plain probabilities no longer pays for another token."""

COST, VERIFICATION, OVERHEAD = "cost", "verification", "overhead"
"""Options: time of a drafter step (c); time that each drafted token adds to the target's call (0 if
calls of any width take equally long); time of a round beyond one target step for any draft."""

EXPECTED = "acceptance"
"""Option: the acceptance rate before any test."""

DEFAULTS = {COST: 0.05, VERIFICATION: 0.0, OVERHEAD: 0.0, EXPECTED: 0.7}

_HELP = {
    COST: "time of a drafter step, in target steps",
    VERIFICATION: "time that a drafted token adds to the target's call, in target steps",
    OVERHEAD: "time of a round beyond one target step, for any draft",
    EXPECTED: "acceptance rate expected before any test",
}


def cost_field(option: str) -> Any:
    """The config field of one of the cost options."""
    bounds = "(0, 1)" if option == EXPECTED else "[0, inf)"
    return fields.number(DEFAULTS[option], bounds=bounds, traced=option, help=_HELP[option])


def check_adaptive(values: Mapping[str, Any]) -> None:
    """Refuses options of adaptive lengths where the length is fixed.

    Raises:
      ValueError: naming the first.
    """
    if values.get("adapt", FIXED) == FIXED:
        for field in DEFAULTS:
            if field in values:
                raise ValueError(f"{field} needs adapt to be {ACCEPTANCE!r} or {BREAK_EVEN!r}")


TRUST = 8.0
"""Weight of the initially expected acceptance, in tests."""

MEMORY = 0.95
"""Weight of earlier tests at each new one: some twenty tests are remembered."""


class Running(struct.PyTreeNode):
    """Exponentially weighted acceptance tests of every row."""

    accepted: jax.Array  # [B] float32
    tested: jax.Array  # [B] float32

    def after(self, accepted: jax.Array, tested: jax.Array) -> Running:
        """Adds a round's tests [B]; rows without tests are unchanged."""
        kept = MEMORY**tested
        return Running(self.accepted * kept + accepted, self.tested * kept + tested)

    def acceptance(self, numbers: dict[str, jax.Array]) -> jax.Array:
        """The expected acceptance rate [B]: the initial expectation, corrected by the tests."""
        return (numbers[EXPECTED] * TRUST + self.accepted) / (TRUST + self.tested)


def empty_running(batch: int) -> Running:
    """The state before the first test."""
    zero = jnp.zeros((batch,), jnp.float32)
    return Running(zero, zero)


def speeds(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """Expected tokens per time [B, longest] of rounds that draft 1 .. longest tokens."""
    alpha = running.acceptance(numbers)[:, None]
    drafted = jnp.arange(1, longest + 1)
    tokens = 1.0 + jnp.cumsum(alpha**drafted, axis=1)
    return tokens / (1.0 + numbers[OVERHEAD] + drafted * (numbers[COST] + numbers[VERIFICATION]))


def best_length(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """The draft length [B] among `list_doubling_widths` with the highest expected speed."""
    known = jnp.array(list_doubling_widths(longest), jnp.int32)
    return known[jnp.argmax(speeds(running, longest, numbers)[:, known - 1], axis=1)]


def min_chance(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """The acceptance probability [B] of a draft above which drafting on is worth its time.

    Another token adds its time and, if the draft is accepted, `acceptance` tokens, each worth the
    time per token at the best expected speed.
    """
    speed = jnp.max(speeds(running, longest, numbers), axis=1)
    time = numbers[COST] + numbers[VERIFICATION]
    return speed * time / running.acceptance(numbers)
