"""Trains a policy on queries for which the reward of every arm is known.

See docs/methods/selection.md, "Objective".

All arms were tried on every query, so the expected reward J = mean of sum_a pi(a|q) r(q, a) is a
sum, not a sample, and is maximized as such. REINFORCE draws one arm for each query and gives the
same gradient on average; it is the alternative. Maximizing the mean of sum_a r(q, a) log pi(a|q),
as if logged pairs of arm and reward were labels, does neither: its optimum is pi proportional to r.
Letters: N queries, B rows of a batch, D width of the embedding, k arms.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax

from specjax.contracts import fields
from specjax.models.base import Params
from specjax.selection.policy import Policy, logits

EXACT, REINFORCE = OBJECTIVES = ("exact", "reinforce")


@dataclasses.dataclass(frozen=True)
class Fit:
    """Training settings of a policy; the defaults are the paper's (Table 9). Hashable.

    `baseline` subtracts from a reward of REINFORCE the mean of the batch's other rows.

    Raises:
      ValueError: when a setting is unknown or out of range.
    """

    objective: str = fields.choice(OBJECTIVES, EXACT, help="how the gradient is taken")
    baseline: bool = fields.flag(help="baseline of reinforce")
    epochs: int = fields.integer(3, most=10**6, help="passes over the queries")
    batch_size: int = fields.integer(64, most=2**20, help="queries of a step")
    learning_rate: float = fields.number(1e-3, bounds="[1e-9, 1000]", help="of AdamW")
    weight_decay: float = fields.number(1e-2, bounds="[0, 1000]", help="of AdamW")
    b1: float = fields.number(0.9, bounds="[0, 1)", help="of AdamW")
    b2: float = fields.number(0.99, bounds="[0, 1)", help="of AdamW")
    eps: float = fields.number(1e-8, bounds="[1e-30, 1]", help="of AdamW")

    def __post_init__(self) -> None:
        fields.check(self)
        if self.baseline and self.objective != REINFORCE:
            raise ValueError(f"baseline is True; it needs the objective {REINFORCE!r}")


def compute_expected_reward(scores: jax.Array, rewards: jax.Array) -> jax.Array:
    """Expected reward [B] of a policy with logits `scores` [B, k]."""
    return jnp.sum(jax.nn.softmax(scores) * rewards, axis=-1)


def compute_reinforce_objective(
    scores: jax.Array, rewards: jax.Array, weight: jax.Array, key: jax.Array, baseline: bool
) -> jax.Array:
    """The REINFORCE objective [B]: log pi(a) (r(a) - b) for one arm a ~ pi of each row.

    The gradient is that of `compute_expected_reward` on average, with any b that does not depend on
    the row's own arm: here 0, or the mean reward of the other rows. `weight` [B] is 0 for padding
    rows.
    """
    arm = jax.random.categorical(key, jax.lax.stop_gradient(scores))[:, None]
    gained = jnp.take_along_axis(rewards, arm, axis=1)[:, 0]
    others = (jnp.sum(gained * weight) - gained) / jnp.maximum(jnp.sum(weight) - 1, 1)
    advantage = gained - others * baseline
    return jnp.take_along_axis(jax.nn.log_softmax(scores), arm, axis=1)[:, 0] * advantage


def fit(
    policy: Policy, settings: Fit, embeddings: jax.Array, rewards: jax.Array, key: jax.Array
) -> Params:
    """Parameters of the policy after all epochs on embeddings [N, D] with rewards [N, k] float32.

    Queries are reshuffled in each epoch. Each N compiles one program.
    """
    first, order, draws = jax.random.split(key, 3)
    return _train(settings, policy.init(first), embeddings, rewards, order, draws)


@functools.partial(jax.jit, static_argnames="settings")
def _train(
    settings: Fit,
    params: Params,
    embeddings: jax.Array,
    rewards: jax.Array,
    order: jax.Array,
    draws: jax.Array,
) -> Params:
    optimizer = optax.adamw(
        settings.learning_rate,
        settings.b1,
        settings.b2,
        settings.eps,
        weight_decay=settings.weight_decay,
    )

    def objective(params: Params, rows: jax.Array, weight: jax.Array, key: jax.Array) -> jax.Array:
        scores, gains = logits(params, embeddings[rows]), rewards[rows]
        if settings.objective == EXACT:
            value = compute_expected_reward(scores, gains)
        else:
            value = compute_reinforce_objective(scores, gains, weight, key, settings.baseline)
        return -jnp.sum(value * weight) / jnp.sum(weight)

    def step(carry: tuple, batch: tuple) -> tuple:
        params, state = carry
        updates, state = optimizer.update(jax.grad(objective)(params, *batch), state, params)
        return (optax.apply_updates(params, updates), state), None

    rows, weight = _batches(len(embeddings), settings, order)
    batches = rows, weight, jax.random.split(draws, len(rows))
    return jax.lax.scan(step, (params, optimizer.init(params)), batches)[0][0]


def _batches(count: int, settings: Fit, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows [steps, B] of all batches of all epochs, and their weights; 0 for padding."""
    size = min(settings.batch_size, count)
    missing = -count % size
    keys = jax.random.split(key, settings.epochs)
    orders = jax.vmap(lambda epoch_key: jax.random.permutation(epoch_key, count))(keys)
    rows = jnp.pad(orders, ((0, 0), (0, missing)))
    weight = jnp.broadcast_to(jnp.arange(count + missing) < count, rows.shape)
    return rows.reshape(-1, size), weight.reshape(-1, size).astype(jnp.float32)
