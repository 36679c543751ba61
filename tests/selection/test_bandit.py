"""Linear bandits: their regressions, their regret on a linear toy, and what leaves no trace."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.selection import bandit as bandits
from specjax.selection.bandit import Bandit, context, estimates, projection, update

ARMS, WIDTH, ROUNDS, NOISE = 3, 5, 1000, 0.1


@functools.partial(jax.jit, static_argnames="made")
def play(made: Bandit, truth: jax.Array, contexts: jax.Array, key: jax.Array):
    """Final state and regret [rounds] of a bandit whose arm j pays truth_j . x plus noise."""

    def step(state, this):
        x, key = this
        mine, noise = jax.random.split(key)
        arm = made.choose(state, x, mine)
        means = truth @ x
        reward = means[arm] + NOISE * jax.random.normal(noise)
        return update(state, x, arm, reward), (means.max() - means[arm], arm, reward)

    keys = jax.random.split(key, len(contexts))
    return jax.lax.scan(step, made.start(), (contexts, keys))


@pytest.fixture(scope="module")
def toy():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(ARMS, WIDTH))
    contexts = np.concatenate([rng.normal(size=(ROUNDS, WIDTH - 1)), np.ones((ROUNDS, 1))], 1)
    return jnp.asarray(truth, jnp.float32), jnp.asarray(contexts, jnp.float32)


@pytest.mark.parametrize("kind", bandits.KINDS)
def test_regret_ends_and_stays_far_below_that_of_chance(kind, toy):
    truth, contexts = toy
    means = contexts @ truth.T
    chance = float((means.max(axis=1) - means.mean(axis=1)).sum())
    for seed in range(3):
        made = Bandit(ARMS, WIDTH, kind, spread=NOISE)
        state, (regret, *_) = play(made, truth, contexts, jax.random.key(seed))
        assert regret.sum() < 0.05 * chance
        assert regret[-300:].mean() < 0.05 * regret[:50].mean()
        guessed = jnp.stack([estimates(state, x)[0] for x in contexts[:10]])
        assert float(jnp.mean(jnp.argmax(guessed, 1) == jnp.argmax(means[:10], 1))) >= 0.9


def test_without_spread_the_bandit_can_stay_with_a_worse_arm():
    """The first arm pays 0.2 and the second 1: who never looks stays with the first."""
    truth, contexts = jnp.array([[0.2], [1.0]]), jnp.ones((50, 1))
    greedy = play(Bandit(2, 1, spread=0.0), truth, contexts, jax.random.key(0))[1][1]
    curious = play(Bandit(2, 1, spread=1.0), truth, contexts, jax.random.key(0))[1][1]
    assert greedy.max() == 0 and curious[-10:].min() == 1


def test_the_state_is_the_ridge_regression_of_what_each_arm_gave(toy):
    truth, contexts = toy
    made = Bandit(ARMS, WIDTH, "thompson", spread=NOISE, ridge=0.5)
    state, (_, arms, rewards) = play(made, truth, contexts, jax.random.key(3))
    for arm in range(ARMS):
        seen = np.asarray(contexts, np.float64)[np.asarray(arms) == arm]
        gained = np.asarray(rewards, np.float64)[np.asarray(arms) == arm]
        inverse = np.linalg.inv(0.5 * np.eye(WIDTH) + seen.T @ seen)
        np.testing.assert_allclose(state.inverse[arm], inverse, atol=1e-3 * inverse.max())
        x = np.asarray(contexts[0], np.float64)
        mean, deviation = estimates(state, contexts[0])
        assert mean[arm] == pytest.approx(x @ inverse @ (seen.T @ gained), abs=2e-3)
        assert deviation[arm] == pytest.approx(np.sqrt(x @ inverse @ x), rel=1e-2)


def test_an_observation_of_weight_0_leaves_no_trace_and_one_of_2_counts_twice(toy):
    _, contexts = toy
    state = update(Bandit(ARMS, WIDTH).start(), contexts[0], 1, 0.7)
    same = update(state, contexts[1], 2, 5.0, 0.0)
    jax.tree.map(np.testing.assert_array_equal, same, state)
    twice = update(update(state, contexts[1], 2, 5.0), contexts[1], 2, 5.0)
    once = update(state, contexts[1], 2, 5.0, 2.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), once, twice)


def test_thompson_draws_follow_the_posterior_of_the_weights(toy):
    """Choices by one draw of the reward are as frequent as by drawing all weights."""
    _, contexts = toy
    made = Bandit(2, 2, "thompson", spread=0.8)
    state = made.start()
    for x, arm, reward in ((contexts[0], 0, 0.5), (contexts[1], 1, 0.3), (contexts[2], 1, 0.9)):
        state = update(state, x[:2], arm, reward)
    x = contexts[3, :2]
    keys = jax.random.split(jax.random.key(0), 20_000)
    share = jax.vmap(lambda key: made.choose(state, x, key))(keys).mean()
    rng, inverse = np.random.default_rng(1), np.asarray(state.inverse, np.float64)
    means = np.einsum("kij,kj->ki", inverse, state.total)
    weights = [rng.multivariate_normal(means[a], 0.8**2 * inverse[a], 20_000) for a in range(2)]
    first, second = (drawn @ np.asarray(x) for drawn in weights)
    assert share == pytest.approx(np.mean(second > first), abs=0.02)


def test_contexts_keep_directions_apart_and_end_with_a_constant():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, 300))
    rows = jnp.asarray(np.stack([first, 3 * first, second]), jnp.float32)
    matrix = projection(jax.random.key(0), 300, 33)
    found = context(matrix, rows)
    assert found.shape == (3, 33) and np.all(found[:, -1] == 1)
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)  # direction only
    unit = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    apart, kept = jnp.linalg.norm(unit[0] - unit[2]), jnp.linalg.norm(found[0] - found[2])
    assert kept == pytest.approx(float(apart), rel=0.3)
    assert np.isfinite(context(matrix, jnp.zeros((1, 300)))).all()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "greedy"}, "kind is 'greedy'; it must be one of ucb, thompson"),
        ({"arms": 0}, "arms is 0"),
        ({"spread": -1.0}, "spread is -1.0"),
        ({"ridge": 0.0}, "ridge is 0.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        Bandit(**{"arms": 2, "width": 3, **fields})
