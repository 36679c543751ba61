"""Stop strings, matched by an automaton over tokens, or over bytes if rows have their own."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Int16, Int32, UInt8


class Stops(struct.PyTreeNode):
    """The automaton of stop strings that all rows share.

    Tokens of one kind share transitions. A string may begin and end inside tokens.
    """

    kind: Int32[Array, " V"]  # of each token
    following: Int32[Array, "S C"]  # the state after a token of each kind
    completes: Bool[Array, "S C"]  # whether that token completes a string

    def map_rows(self, change: Callable[[jax.Array], jax.Array]) -> Stops:
        """The same: no array has the row axis."""
        return self

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


class TokenTexts(struct.PyTreeNode):
    """The text of every token of a vocabulary, as bytes of UTF-8."""

    content: UInt8[Array, " N"]  # of all tokens, one after the other
    starts: Int32[Array, " V+1"]  # where the text of each token begins; that of the next ends it


class ByteMoves(struct.PyTreeNode):
    """The automaton of each row's stop strings; state 0 is the first."""

    following: Int16[Array, "B S 256"]  # the state after each byte
    completes: Bool[Array, "B S"]  # whether a string ends where the state is reached
    longest: Int32[Array, " B"]  # bytes of the row's longest string; 0: it has none


class RowStops(struct.PyTreeNode):
    """Stop strings of each row, in tables whose shape does not depend on the strings.

    Tokens are read byte by byte. Rows without strings read nothing.
    """

    texts: TokenTexts
    moves: ByteMoves

    def map_rows(self, change: Callable[[jax.Array], jax.Array]) -> RowStops:
        """The stops with the arrays that have the row axis changed."""
        return self.replace(moves=jax.tree.map(change, self.moves))

    def begin(self, tokens: Int[Array, "B N"], length: Int[Array, " B"]) -> Int[Array, " B"]:
        """Returns the state [B] after the first `length` [B] of tokens [B, N]."""
        return self._walk(jnp.zeros_like(length), tokens, length, self.moves.longest)[0]

    def read(
        self, state: Int[Array, " B"], tokens: Int[Array, "B N"], count: Int[Array, " B"]
    ) -> tuple[Int[Array, " B"], Int[Array, " B"], Bool[Array, " B"]]:
        """Returns the state [B] after tokens [B, N], their number and whether a string ended.

        At most `count` [B] tokens are read, up to and including the first that completes a string.
        """
        return self._walk(state, tokens, count)

    def _walk(
        self,
        state: Int[Array, " B"],
        tokens: Int[Array, "B N"],
        count: Int[Array, " B"],
        last: Int[Array, " B"] | None = None,
    ) -> tuple[Int[Array, " B"], Int[Array, " B"], Bool[Array, " B"]]:
        """Reads all bytes, or the `last` [B] ones without an end where a string does."""
        starts, moves = self.texts.starts, self.moves
        sizes = starts[tokens + 1] - starts[tokens]
        sizes = jnp.where(jnp.arange(tokens.shape[1]) < count[:, None], sizes, 0)
        ends = jnp.cumsum(sizes, axis=1)
        total = jnp.where(moves.longest > 0, ends[:, -1], 0)
        offsets = starts[tokens] - (ends - sizes)  # from a place in the text to one in `content`
        row = jnp.arange(len(count))

        def is_unread(carry: tuple[jax.Array, ...]) -> jax.Array:
            place, _, _, complete = carry
            return jnp.any((place < total) & ~complete)

        def step(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            place, state, read, complete = carry
            going = (place < total) & ~complete
            token = jnp.sum(ends <= place[:, None], axis=1)
            byte = self.texts.content.at[offsets[row, token] + place].get(mode="clip")
            state = jnp.where(going, moves.following[row, state, byte], state)
            if last is None:
                complete |= going & moves.completes[row, state]
            return place + 1, state, jnp.where(complete & going, token + 1, read), complete

        place = jnp.zeros_like(total) if last is None else jnp.maximum(total - last, 0)
        start = place, state, count, jnp.zeros(count.shape, bool)
        _, state, read, complete = jax.lax.while_loop(is_unread, step, start)
        return state, read, complete
