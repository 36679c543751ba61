"""Contextual linear bandits: choices that learn from their rewards.

Every arm has its own ridge regression of the reward on the context. LinUCB (Li et al., "A
Contextual-Bandit Approach to Personalized News Article Recommendation", 2010, Algorithm 1) adds a
bonus for contexts that an arm was not tried on; Thompson sampling (Agrawal and Goyal, "Thompson
Sampling for Contextual Bandits with Linear Payoffs", 2013) draws the reward from the posterior.
Pure functions on a state, for the host between queries and for jitted loops. Letters: k arms, d
width of the context, D width of an embedding.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

UCB, THOMPSON = KINDS = ("ucb", "thompson")


class BanditState(struct.PyTreeNode):
    """Statistics of the observed rewards of the arms.

    The Sherman-Morrison formula updates the inverse of the precision A = ridge * I + sum of x x^T,
    so that no round solves a linear system.
    """

    inverse: jax.Array  # [k, d, d] float32: A^-1 of each arm
    total: jax.Array  # [k, d] float32: sum of reward * x of each arm


@dataclasses.dataclass(frozen=True)
class Bandit:
    """Settings of a bandit with `arms` arms on contexts of `width`; hashable, without arrays.

    `spread` is the number of standard deviations of the bonus (`ucb`), or the factor of the
    posterior's standard deviation (`thompson`); 0 always takes the best mean. It scales with the
    reward's noise.

    Raises:
      ValueError: when a setting is unknown or out of range.
    """

    arms: int
    width: int
    kind: str = UCB
    spread: float = 1.0
    ridge: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        for field in ("arms", "width"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)!r}; it must be at least 1")
        if not 0 <= self.spread < float("inf"):
            raise ValueError(f"spread is {self.spread!r}; it must be at least 0")
        if not 0 < self.ridge < float("inf"):
            raise ValueError(f"ridge is {self.ridge!r}; it must be a positive number")

    def start(self) -> BanditState:
        """The initial state: every arm has the expected reward 0."""
        inverse = jnp.broadcast_to(
            jnp.eye(self.width) / self.ridge, (self.arms, self.width, self.width)
        )
        return BanditState(inverse, jnp.zeros((self.arms, self.width)))

    def choose(self, state: BanditState, context: jax.Array, key: jax.Array) -> jax.Array:
        """The arm, int32, for a context [d]; `ucb` does not use the key. Ties go to the first."""
        mean, deviation = estimates(state, context)
        if self.kind == THOMPSON:
            deviation = deviation * jax.random.normal(key, deviation.shape)
        return jnp.argmax(mean + self.spread * deviation).astype(jnp.int32)


def estimates(state: BanditState, context: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Expected rewards [k] at a context [d] and their standard deviations [k] at unit noise.

    One draw of the reward per arm has the same distribution as drawing all its d weights first.
    """
    directions = jnp.einsum("kij,j->ki", state.inverse, context)
    mean = jnp.einsum("ki,ki->k", directions, state.total)
    return mean, jnp.sqrt(jnp.maximum(directions @ context, 0.0))


def update(
    state: BanditState,
    context: jax.Array,
    arm: jax.Array,
    reward: jax.Array,
    weight: jax.Array | float = 1.0,
) -> BanditState:
    """The state after `arm` gave `reward` at a context [d]; at weight 0 nothing is learned.

    A weight of w counts as w observations. The other arms are unchanged.
    """
    inverse = state.inverse[arm]
    direction = inverse @ context
    gain = weight / (1.0 + weight * (context @ direction))
    return BanditState(
        state.inverse.at[arm].add(-gain * jnp.outer(direction, direction)),
        state.total.at[arm].add(weight * reward * context),
    )


def projection(key: jax.Array, embedding_width: int, width: int) -> jax.Array:
    """A fixed random matrix [D, d - 1] float32 for `context`."""
    made = jax.random.normal(key, (embedding_width, width - 1), jnp.float32)
    return made / jnp.sqrt(max(width - 1, 1))


def context(matrix: jax.Array, embedding: jax.Array) -> jax.Array:
    """Contexts [..., d] of embeddings [..., D]: projected directions, and a constant 1.

    A bandit must see d rewards of an arm to know it, and every choice costs k d^2, so the D numbers
    of an embedding are too many. A random projection approximately preserves distances (Johnson and
    Lindenstrauss, 1984) and needs no data. Embeddings are normalized to length 1 first, so that for
    any model a context is about as long as its constant, and `spread` and `ridge` have the same
    meaning. The constant's weight is the mean reward of an arm.
    """
    length = jnp.linalg.norm(embedding, axis=-1, keepdims=True)
    direction = embedding / jnp.maximum(length, 1e-12)
    ones = jnp.ones((*embedding.shape[:-1], 1), jnp.float32)
    return jnp.concatenate([direction @ matrix, ones], axis=-1)
