"""A bandit inside the decode loop: chooses the arm and draft length of each round.

Arms are drafters whose acceptance is unknown and may change within a text. Each test of a drafted
token is evidence about its arm for any draft length, so the bandit learns one acceptance rate per
arm; the speed of every (arm, length) follows from it and from the costs (Leviathan et al. 2023,
Theorem 3.8). Optimism decides: a bonus that shrinks with the tests seen (upper confidence bound,
Auer et al. 2002) or noise of that size (Thompson sampling, normal). Older rounds count less
(Garivier and Moulines 2011), so an arm that was given up is tried again.

Every row decides for itself, from earlier rounds and its own key: outputs stay exact and do not
depend on the batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.drafting.adaptive_length import CERTAIN, EXPECTED, OVERHEAD, VERIFICATION, Running

UCB, THOMPSON = KINDS = ("ucb", "thompson")
"""Forms of optimism: a bonus, or noise."""

COSTS = "costs"
"""Option, [A]: time of each arm's drafter step in target steps (c)."""

TRUST, DISCOUNT, EXPLORE, PRIOR = "trust", "discount", "explore", "prior"
"""Options: weight of the initial acceptance in tests; decay of a round's weight at the next one;
standard deviations of optimism; weight of a policy's prediction in tests at the first round."""

DEFAULTS = {
    VERIFICATION: 0.0,
    OVERHEAD: 0.0,
    EXPECTED: 0.6,
    TRUST: 6.0,
    DISCOUNT: 0.6,
    EXPLORE: 0.25,
    PRIOR: 4.0,
}
"""For texts of tens of tokens: a few rounds decide."""

Numbers = dict[str, jax.Array]


def empty_running(batch: int, arms: int) -> Running:
    """The state before the first test, [B, A]."""
    zero = jnp.zeros((batch, arms), jnp.float32)
    return Running(zero, zero)


def policy_prior(logits: jax.Array, numbers: Numbers) -> Running:
    """A policy's logits [B, A] as tests: all accepted for its first arm, others in proportion."""
    chance = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    tested = jnp.ones_like(chance) * numbers[PRIOR]
    return Running(tested * chance / jnp.max(chance, axis=-1, keepdims=True), tested)


def after(
    counts: Running, arm: jax.Array, accepted: jax.Array, tested: jax.Array, numbers: Numbers
) -> Running:
    """Adds a round's tests [B] of the row's arm [B]; earlier tests decay."""
    chosen = jnp.arange(counts.tested.shape[1]) == arm[:, None]
    kept = numbers[DISCOUNT]
    return Running(
        counts.accepted * kept + chosen * accepted[:, None],
        counts.tested * kept + chosen * tested[:, None],
    )


def optimistic_acceptance(counts: Running, numbers: Numbers, keys: jax.Array | None) -> jax.Array:
    """Optimistic acceptance [B, A]: expectation plus bonus, or noise with `keys` [B]."""
    tests = numbers[TRUST] + counts.tested
    expected = (numbers[EXPECTED] * numbers[TRUST] + counts.accepted) / tests
    spread = jnp.sqrt(expected * (1.0 - expected) / tests)
    factor = numbers[EXPLORE]
    if keys is not None:
        arms = expected.shape[1:]
        factor *= jax.vmap(lambda key: jax.random.normal(key, arms))(keys)
    return jnp.clip(expected + factor * spread, 0.0, CERTAIN)


def speeds(
    acceptance: jax.Array, arms: tuple[int, ...], lengths: tuple[int, ...], numbers: Numbers
) -> jax.Array:
    """Tokens per target step [B, O] of rounds of the options (arms[o], lengths[o]).

    From the arms' acceptance [B, A]. A round that drafts nothing is one target step and one token.
    """
    powers = acceptance[..., None] ** jnp.arange(max(lengths) + 1)
    tokens = jnp.cumsum(powers, axis=-1)[:, jnp.array(arms), jnp.array(lengths)]
    drafted = jnp.array(lengths)
    step = numbers[COSTS][jnp.array(arms)] + numbers[VERIFICATION]
    return tokens / (1.0 + (drafted > 0) * numbers[OVERHEAD] + drafted * step)
