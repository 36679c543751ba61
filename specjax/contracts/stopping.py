"""Stop strings: an automaton over tokens, which rows walk as they grow."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct


class Stops(struct.PyTreeNode):
    """The automaton of some stop strings.

    Tokens of one kind have the same transitions. A string may begin and end inside of tokens.
    """

    kind: jax.Array  # [V] int32: of each token
    following: jax.Array  # [S, C] int32: the state after a token of each kind
    completes: jax.Array  # [S, C] bool: whether such a token completes a string

    def begin(self, tokens: jax.Array, length: jax.Array) -> jax.Array:
        """The state [B] after the first `length` [B] of tokens [B, N]."""
        state = jnp.zeros_like(length)
        return self._walk(state, tokens, length, jnp.zeros_like(self.completes))[0]

    def read(
        self, state: jax.Array, tokens: jax.Array, count: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The state [B] after tokens [B, N], how many were read and whether a string is complete.

        The first `count` [B] are read, up to and including the first that completes one.
        """
        return self._walk(state, tokens, count, self.completes)

    def _walk(
        self, state: jax.Array, tokens: jax.Array, count: jax.Array, completes: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def step(
            carry: tuple[jax.Array, jax.Array, jax.Array], token: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
            state, read, complete = carry
            going, kind = (read < count) & ~complete, self.kind[token]
            complete |= going & completes[state, kind]
            state = jnp.where(going, self.following[state, kind], state)
            return (state, read + going, complete), None

        start = state, jnp.zeros_like(count), jnp.zeros(count.shape, bool)
        return jax.lax.scan(step, start, tokens.T)[0]
