"""Adaptive draft length, from a row's acceptance so far and the value of another token.

Leviathan et al. (2023), Theorem 3.8 and section 3.5, evaluated inside the loop with the acceptance
seen so far. Times are in target steps of one token; traced options give the cost of a round and the
initial expectation. Every row decides for itself, so its output does not depend on its batch; only
`load` chooses one length for all rows (`by_load`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.verification.fitted import list_doubling_widths

FIXED, ACCEPTANCE, BREAK_EVEN, LOAD = ADAPT = ("fixed", "acceptance", "break_even", "load")
"""Draft length: the longest; the best one for the acceptance so far; up to the token where the
product of the largest plain probabilities no longer pays for another token; the best one for all
rows of the batch together, zero included."""

COST, VERIFICATION, OVERHEAD = "cost", "verification", "overhead"
"""Options: time of a drafter step (c); time that each drafted token adds to the target's call (0 if
calls of any width take equally long); time of a round beyond one target step for any draft."""

TIMES, CATCHING_UP = "times", "catching_up"
"""Options of `load`: time of a round of each of `list_lengths`, instead of those three; time of a
call that feeds tokens which the drafter missed while it did not run (`contracts.catching_up`)."""

EXPECTED = "acceptance"
"""Option: the acceptance rate before any test."""

DEFAULTS = {COST: 0.05, VERIFICATION: 0.0, OVERHEAD: 0.0, EXPECTED: 0.7, CATCHING_UP: 0.1}

_HELP = {
    COST: "time of a drafter step, in target steps",
    VERIFICATION: "time that a drafted token adds to the target's call, in target steps",
    OVERHEAD: "time of a round beyond one target step, for any draft",
    EXPECTED: "acceptance rate expected before any test",
    CATCHING_UP: "time of a call of a drafter that did not run, in target steps",
}


def cost_field(option: str) -> Any:
    """The config field of one of the cost options."""
    bounds = "(0, 1)" if option == EXPECTED else "[0, inf)"
    return fields.number(DEFAULTS[option], bounds=bounds, traced=option, help=_HELP[option])


def times_field() -> Any:
    """The config field of measured times; without one they follow from the other costs."""
    return fields.listing(
        "a list of positive numbers",
        lambda x: fields.is_number(x) and x > 0,
        None,
        some=True,
        traced=TIMES,
        help="times of rounds of 0, 1, 3, 7, ... and `length` tokens, as `measure_load` gives them",
    )


def check_adaptive(values: Mapping[str, Any]) -> None:
    """Refuses options of adaptive lengths where no length follows from them.

    Raises:
      ValueError: naming the first.
    """
    adapt = values.get("adapt", FIXED)
    for field in (CATCHING_UP, TIMES):
        if field in values and adapt != LOAD:
            raise ValueError(f"{field} needs adapt to be {LOAD!r}")
    for field in DEFAULTS:
        if field in values and adapt == FIXED:
            raise ValueError(f"{field} needs adapt to be {' or '.join(map(repr, ADAPT[1:]))}")
    if TIMES in values:
        _check_times(values)


def _check_times(values: Mapping[str, Any]) -> None:
    """Refuses times beside the costs that they replace, or of other lengths."""
    for field in (COST, VERIFICATION, OVERHEAD):
        if field in values:
            raise ValueError(f"{field} is {values[field]}; it must not be given beside {TIMES}")
    lengths = list_lengths(values.get("length") or 0)
    if len(values[TIMES]) != len(lengths):
        raise ValueError(
            f"{TIMES} has {len(values[TIMES])} numbers; it must have {len(lengths)}, of rounds of"
            f" {', '.join(map(str, lengths))} drafted tokens"
        )


def list_lengths(longest: int) -> tuple[int, ...]:
    """Lists the draft lengths of `load`: 0, 1, 3, 7, ... and `longest`."""
    return (0, *list_doubling_widths(longest))


TRUST = 8.0
"""Weight of the initially expected acceptance, in tests."""

MEMORY = 0.95
"""Weight of earlier tests at each new one: some twenty tests are remembered."""


CERTAIN = 1.0 - 1e-6
"""The largest acceptance that an optimistic estimate may reach."""


class Running(struct.PyTreeNode):
    """Exponentially weighted acceptance tests of every row."""

    accepted: jax.Array  # [B] float32
    tested: jax.Array  # [B] float32

    def after(self, accepted: jax.Array, tested: jax.Array, idle: float = 1.0) -> Running:
        """Adds a round's tests [B]; in rows without tests `idle` of the weight stays."""
        kept = jnp.where(tested > 0, MEMORY**tested, idle)
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
