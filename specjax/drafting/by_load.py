"""Draft length by load: one length for all rows of a round, zero included.

The target's call is as wide as its longest draft, so all active rows share the length that gives
the most expected tokens of the whole batch for the time of a round (docs/methods/
adaptive_length.md). In rounds of length zero the drafter does not run. As a length depends on the
earlier rounds of all rows, drawn tokens depend on the batch, but not their distribution. B batch
rows, K drafted tokens, N lengths to choose from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from specjax.contracts.catching_up import count_catch_up_runs
from specjax.contracts.context import Context
from specjax.contracts.draft import HELD, Draft
from specjax.contracts.drafter import STOP, Log
from specjax.contracts.env import Env
from specjax.contracts.rows import Caches, make_zeros, run_if
from specjax.drafting.adaptive_length import (
    CATCHING_UP,
    CERTAIN,
    COST,
    EXPECTED,
    OVERHEAD,
    TIMES,
    TRUST,
    VERIFICATION,
    Running,
    list_lengths,
)
from specjax.drafting.nodes import ProposerMemory

if TYPE_CHECKING:
    from specjax.drafting.proposer import Proposer

IDLE = 0.995
"""Weight of earlier tests after a round without any, so that drafts are tried again."""

OPTIMISM = 0.25
"""Standard deviations by which the pooled acceptance is taken for higher than it seems."""

HORIZON = 16
"""Rounds over which the calls of a drafter that catches up are spread."""

Numbers = dict[str, jax.Array]

Made = tuple[Draft, Caches, ProposerMemory, Log]

Propose = Callable[[Env, Caches, ProposerMemory, Context, jax.Array], Made]
"""The draft of a proposer, at most `Context.most` tokens of which are used."""


def draft(
    proposer: Proposer,
    propose: Propose,
    env: Env,
    caches: Caches,
    memory: ProposerMemory,
    context: Context,
    keys: jax.Array,
) -> Made:
    """The draft of `propose`, cut at the chosen length; of length zero it does not run."""
    assert memory.acceptance_counts is not None
    missed = count_missed_calls(proposer, caches, context)
    length = choose_length(memory.acceptance_counts, proposer.depth, context, missed)
    inside = context.replace(most=jnp.minimum(context.most, length))
    own = {name: caches[name] for name in proposer.models}
    others = {name: cache for name, cache in caches.items() if name not in own}

    def run(own: Caches, memory: ProposerMemory) -> Made:
        made, after, memory, log = propose(env, {**others, **own}, memory, inside, keys)
        made = made.cut(inside.most, proposer.ends(env))
        return made, {name: after[name] for name in own}, memory, log

    def outputs() -> tuple[Draft, Log]:
        made, _, _, log = run(own, memory)
        return made, log

    empty, log = make_zeros(outputs)
    empty = empty.replace(review=jnp.ones_like(empty.review))
    log[STOP] = jnp.full_like(log[STOP], HELD)
    carry = empty, own, memory, log
    made, own, memory, log = run_if(length > 0, lambda carry: run(carry[1], carry[2]), carry)
    return made, {**caches, **own}, memory, log


def count_missed_calls(proposer: Proposer, caches: Caches, context: Context) -> jax.Array:
    """Number [] of calls that the proposer needs to catch up before it drafts."""
    runs = (
        jnp.max(count_catch_up_runs(caches[name], context, proposer.lag))
        for name in proposer.models
    )
    return jnp.sum(jnp.array([0, *runs]))


def choose_length(counts: Running, longest: int, context: Context, missed: jax.Array) -> jax.Array:
    """The length [] among `list_lengths` with the most expected tokens for its time.

    `missed` [] is the number of calls with which the drafter would catch up. Inactive rows have no
    room, so their tokens do not count.
    """
    numbers, lengths = context.options.numbers, jnp.array(list_lengths(longest), jnp.int32)
    alpha = estimate_acceptance(counts, context.active, numbers)
    tokens = jnp.sum(expect_tokens(alpha, longest, context.room)[:, lengths], axis=0)
    return lengths[jnp.argmax(tokens / compute_times(longest, numbers, missed))]


def estimate_acceptance(counts: Running, active: jax.Array, numbers: Numbers) -> jax.Array:
    """The acceptance rate [B] of rows: their own tests, shrunk towards those of other active rows.

    These are shrunk towards the initial expectation. Added is an optimist's bonus that shrinks with
    the number of all tests (as in `selection.switching`).
    """
    accepted = jnp.where(active, counts.accepted, 0.0)
    tested = jnp.where(active, counts.tested, 0.0)
    prior = numbers[EXPECTED] * TRUST
    others = (prior + jnp.sum(accepted) - accepted) / (TRUST + jnp.sum(tested) - tested)
    own = (others * TRUST + accepted) / (TRUST + tested)
    tests = TRUST + jnp.sum(tested)
    pooled = (prior + jnp.sum(accepted)) / tests
    bonus = OPTIMISM * jnp.sqrt(jnp.maximum(pooled * (1.0 - pooled), 0.0) / tests)
    return jnp.minimum(own + bonus, CERTAIN)


def expect_tokens(alpha: jax.Array, longest: int, room: jax.Array) -> jax.Array:
    """Expected tokens [B, K + 1] of rounds of 0 .. K = `longest` drafted tokens.

    From the acceptance rate [B] of every drafted token and the tokens [B] that still fit.
    """
    drafted = jnp.arange(longest + 1)
    reached = alpha[:, None] ** drafted
    return jnp.cumsum(jnp.where(drafted < room[:, None], reached, 0.0), axis=1)


def compute_times(longest: int, numbers: Numbers, missed: jax.Array) -> jax.Array:
    """Times [N] of rounds of `list_lengths`, in the unit of the first if they were measured."""
    lengths = jnp.array(list_lengths(longest))
    drafts = lengths > 0
    if TIMES in numbers:
        times = numbers[TIMES]
    else:
        token = numbers[COST] + numbers[VERIFICATION]
        times = 1.0 + drafts * numbers[OVERHEAD] + lengths * token
    return times + drafts * missed * numbers[CATCHING_UP] / HORIZON
