"""Stop strings, matched by an automaton over tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Int32


class Stops(struct.PyTreeNode):
    """The automaton of a set of stop strings.

    Tokens of one kind share transitions. A string may begin and end inside tokens.
    """

    kind: Int32[Array, " V"]  # of each token
    following: Int32[Array, "S C"]  # the state after a token of each kind
    completes: Bool[Array, "S C"]  # whether that token completes a string

    def begin(self, tokens: Int[Array, "B N"], length: Int[Array, " B"]) -> Int[Array, " B"]:
        """Returns the state [B] after the first `length` [B] of tokens [B, N]."""
        state = jnp.zeros_like(length)
        return self._walk(state, tokens, length, jnp.zeros_like(self.completes))[0]

    def read(
        self, state: Int[Array, " B"], tokens: Int[Array, "B N"], count: Int[Array, " B"]
    ) -> tuple[Int[Array, " B"], Int[Array, " B"], Bool[Array, " B"]]:
        """Returns the state [B] after tokens [B, N], their number and whether a string ended.

        At most `count` [B] tokens are read, up to and including the first that completes a string.
        """
        return self._walk(state, tokens, count, self.completes)

    def _walk(
        self,
        state: Int[Array, " B"],
        tokens: Int[Array, "B N"],
        count: Int[Array, " B"],
        completes: Bool[Array, "S C"],
    ) -> tuple[Int[Array, " B"], Int[Array, " B"], Bool[Array, " B"]]:
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
