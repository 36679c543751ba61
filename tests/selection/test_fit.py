"""What policies converge to, and that the exact and the sampled gradient are the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.selection.fit import (
    EXACT,
    REINFORCE,
    Fit,
    compute_expected_reward,
    compute_reinforce_objective,
    fit,
)
from specjax.selection.policy import ENCODER_MEAN, Policy, logits
from specjax.selection.scores import best, probabilities

WIDTH = 4
KINDS = np.eye(WIDTH)[:3]
REWARDS = np.array([[0.9, 0.6, 0.0], [0.2, 0.5, 0.25], [0.1, 0.2, 0.7]])
"""Three kinds of queries, far apart, and what the arms give for them."""

MADE = Policy(("a", "b", "c"), ENCODER_MEAN, WIDTH, hidden=16)


@pytest.fixture(scope="module")
def toy():
    """300 queries of the three kinds."""
    kind = np.arange(300) % 3
    noise = 0.05 * np.random.default_rng(0).normal(size=(300, WIDTH))
    return jnp.asarray(KINDS[kind] + noise, jnp.float32), jnp.asarray(REWARDS[kind], jnp.float32)


def at_kinds(params) -> np.ndarray:
    """Probabilities of the arms [3, k] at the three kinds."""
    return probabilities(params, KINDS.astype(np.float32))


@pytest.mark.parametrize(
    "settings",
    [{}, {"objective": REINFORCE}, {"objective": REINFORCE, "baseline": True}],
    ids=["exact", "reinforce", "reinforce with a baseline"],
)
def test_policies_take_the_best_arm_of_every_kind(settings, toy):
    made = Fit(**settings, epochs=40, learning_rate=5e-3)
    found = at_kinds(fit(MADE, made, *toy, jax.random.key(0)))
    np.testing.assert_array_equal(best(found), best(REWARDS))
    assert found[0, 0] > 0.9 and found[2, 2] > 0.9


def test_regression_on_logged_pairs_ends_at_probabilities_proportional_to_rewards(toy):
    """Why it is not offered: it does not learn to take the best arm."""
    params = MADE.init(jax.random.key(0))
    optimizer = optax.adam(5e-3)

    def loss(params):
        return -jnp.mean(jnp.sum(toy[1] * jax.nn.log_softmax(logits(params, toy[0])), axis=1))

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    start = params, optimizer.init(params)
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, None, 1000))(start)
    proportional = REWARDS / REWARDS.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(at_kinds(params), proportional, atol=0.03)


@pytest.mark.parametrize("baseline", [False, True])
def test_the_exact_gradient_is_what_reinforce_gives_on_average(baseline):
    rng = np.random.default_rng(1)
    scores, rewards = jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)
    weight = jnp.array([1.0, 1, 1, 1, 0])  # the last row fills the batch up

    def mean(values):
        return jnp.sum(values * weight)

    exact = jax.grad(lambda s: mean(compute_expected_reward(s, rewards)))(scores)
    one = jax.grad(
        lambda s, key: mean(compute_reinforce_objective(s, rewards, weight, key, baseline))
    )
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = jax.jit(jax.vmap(one, in_axes=(None, 0)))(scores, keys)
    error = drawn.std(axis=0) / np.sqrt(len(keys))
    assert np.all(np.abs(drawn.mean(axis=0) - exact) <= 5 * error + 1e-6)


@pytest.mark.slow
def test_a_baseline_lowers_the_variance_where_all_rewards_are_large():
    scores, rewards = jnp.zeros((8, 3)), 10 + jnp.asarray(np.tile(REWARDS[:1], (8, 1)))
    one = jax.grad(
        lambda s, key, b: jnp.sum(compute_reinforce_objective(s, rewards, jnp.ones(8), key, b))
    )
    keys = jax.random.split(jax.random.key(0), 500)
    spread = {b: jax.vmap(lambda k, b=b: one(scores, k, b))(keys).std() for b in (False, True)}
    assert spread[True] < 0.2 * spread[False]


@pytest.mark.slow
def test_one_epoch_sees_every_query_once_however_the_last_batch_is_filled(toy):
    """70 queries in batches of 64: the gradient of the second is of six queries alone."""
    embeddings, rewards = toy[0][:70], toy[1][:70]
    settings = Fit(epochs=1, learning_rate=1e-4, weight_decay=0.0)
    found = fit(MADE, settings, embeddings, rewards, jax.random.key(2))
    first, order, _ = jax.random.split(jax.random.key(2), 3)
    rows = jax.random.permutation(jax.random.split(order, 1)[0], 70)
    params = MADE.init(first)
    optimizer = optax.adamw(1e-4, 0.9, 0.99, 1e-8, weight_decay=0.0)
    state = optimizer.init(params)
    for part in (rows[:64], rows[64:]):

        def loss(params, part=part):
            return -jnp.mean(
                compute_expected_reward(logits(params, embeddings[part]), rewards[part])
            )

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, params)


def test_the_defaults_are_those_of_the_paper():
    made = Fit()
    assert (made.learning_rate, made.weight_decay, made.b1, made.b2) == (1e-3, 1e-2, 0.9, 0.99)
    assert (made.eps, made.epochs, made.batch_size, made.objective) == (1e-8, 3, 64, EXACT)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"objective": "regression"}, "objective is 'regression'; it must be one of exact, reinf"),
        ({"baseline": True}, "baseline is True; it needs the objective 'reinforce'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0.5}, "batch_size is 0.5"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"b2": 1.0}, "b2 is 1.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        Fit(**fields)
