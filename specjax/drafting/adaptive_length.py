"""Adaptive draft length: what a row has seen of acceptance, and what another token is worth.

Leviathan et al. (2023), Theorem 3.8 and section 3.5, evaluated inside the loop with the acceptance
seen so far. Times are in target steps of one token; traced options say what a round costs and what
to expect at first. Every row decides for itself, so its output does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.verification.fitted import doubling

FIXED, ACCEPTANCE, BREAK_EVEN = ADAPT = ("fixed", "acceptance", "break_even")
"""How long a draft gets: as long as it may; the best length for the acceptance seen so far; up to
the token from which the product of its largest plain probabilities no longer pays for another."""

COST, VERIFICATION, OVERHEAD = "cost", "verification", "overhead"
"""Options: time of a drafter step (c); time that each drafted token adds to the target's call (0
where a call takes as long at any width); what a round takes beyond one target step whatever it
drafts."""

EXPECTED = "acceptance"
"""Option: the acceptance rate before any test."""

DEFAULTS = {COST: 0.05, VERIFICATION: 0.0, OVERHEAD: 0.0, EXPECTED: 0.7}

_HELP = {
    COST: "time of a drafter step, in target steps",
    VERIFICATION: "time that a drafted token adds to the target's call, in target steps",
    OVERHEAD: "time of a round beyond one target step, whatever it drafts",
    EXPECTED: "acceptance rate expected before any test",
}


def cost_field(option: str) -> Any:
    """The config field of one of these options."""
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
"""Tests that the acceptance expected at first counts for."""

MEMORY = 0.95
"""Weight of earlier tests at each new one: some twenty tests are remembered."""


class Running(struct.PyTreeNode):
    """Acceptance tests of every row, the older ones counting less."""

    accepted: jax.Array  # [B] float32
    tested: jax.Array  # [B] float32

    def after(self, accepted: jax.Array, tested: jax.Array) -> Running:
        """With a round's tests [B] added; rows without any stay as they are."""
        kept = MEMORY**tested
        return Running(self.accepted * kept + accepted, self.tested * kept + tested)

    def acceptance(self, numbers: dict[str, jax.Array]) -> jax.Array:
        """The acceptance rate [B] to expect: what was expected at first, corrected by the tests."""
        return (numbers[EXPECTED] * TRUST + self.accepted) / (TRUST + self.tested)


def empty_running(batch: int) -> Running:
    """Before the first test."""
    zero = jnp.zeros((batch,), jnp.float32)
    return Running(zero, zero)


def speeds(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """Expected tokens per time [B, longest] of rounds that draft 1 .. longest tokens."""
    alpha = running.acceptance(numbers)[:, None]
    drafted = jnp.arange(1, longest + 1)
    tokens = 1.0 + jnp.cumsum(alpha**drafted, axis=1)
    return tokens / (1.0 + numbers[OVERHEAD] + drafted * (numbers[COST] + numbers[VERIFICATION]))


def best_length(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """The draft length [B], one of `doubling`, that promises the most speed."""
    known = jnp.array(doubling(longest), jnp.int32)
    return known[jnp.argmax(speeds(running, longest, numbers)[:, known - 1], axis=1)]


def min_chance(running: Running, longest: int, numbers: dict[str, jax.Array]) -> jax.Array:
    """The chance [B] that a draft stands, from which drafting on is worth its time.

    Another token adds its time and, if the draft stands, `acceptance` tokens, each worth the time
    that a token takes at the best speed to expect.
    """
    speed = jnp.max(speeds(running, longest, numbers), axis=1)
    time = numbers[COST] + numbers[VERIFICATION]
    return speed * time / running.acceptance(numbers)
