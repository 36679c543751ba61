"""Copying from context: prompt lookup and Max-Gram.

Chen et al., "Cascade Speculative Drafting" (2024), section 3 (Max-Gram); prompt lookup is its
one-search form. Both search the prompt (the encoder input, too) and what was generated.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.drafting.base import (
    LENGTH,
    NO_MATCH,
    Caches,
    Context,
    Draft,
    Modelless,
    Models,
    last_token,
)
from specjax.drafting.rows import append
from specjax.drafting.sync import window

NOT_A_TOKEN = -1


def text(context: Context, spare: int) -> tuple[jax.Array, jax.Array]:
    """Prompt followed by generated tokens, compact, [B, N], and its length [B].

    Encoder-decoder rows read source, then what follows the decoder start token. `spare` free
    slots at the end leave room for a draft.
    """
    if context.source.shape[1] == 0:
        return jnp.pad(context.tokens, ((0, 0), (0, spare))), context.length
    width = context.source.shape[1]
    size = width + context.tokens.shape[1] + spare
    slot = jnp.arange(size)
    offset = context.begin - context.source_length
    both = jnp.concatenate([context.source, context.tokens], axis=1)
    index = jnp.where(slot < context.source_length[:, None], slot, width + slot + offset[:, None])
    joined = jnp.take_along_axis(both, index, axis=1, mode="clip")
    return joined, context.source_length + context.length - context.begin


def longest_match(
    joined: jax.Array, length: jax.Array, pattern: jax.Array, most: int
) -> tuple[jax.Array, jax.Array]:
    """Where the longest suffix of joined[:, :length] occurred before.

    Returns `begin` [B], the position after the earliest of the longest matches, and `size` [B],
    the length of the match, at most min(most, pattern). One sweep per suffix token over [B, N]
    booleans: O(N) memory.
    """
    count = joined.shape[1]
    padded = jnp.pad(joined, ((0, 0), (most, 0)), constant_values=NOT_A_TOKEN)
    end = jnp.arange(count)

    def alive(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        step, running, _ = carry
        return (step < most) & jnp.any(running)

    def sweep(
        carry: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        step, running, size = carry
        wanted = jnp.take_along_axis(joined, (length - 1 - step)[:, None], axis=1, mode="clip")
        earlier = jax.lax.dynamic_slice_in_dim(padded, most - step, count, axis=1)
        running &= (earlier == wanted) & (step < pattern)[:, None]
        return step + 1, running, size + running

    running = end < (length - 1)[:, None]
    start = (jnp.int32(0), running, jnp.zeros(joined.shape, jnp.int32))
    _, _, size = jax.lax.while_loop(alive, sweep, start)
    best = jnp.argmax(size, axis=1)
    return best + 1, jnp.take_along_axis(size, best[:, None], axis=1)[:, 0]


def pattern_length(context: Context) -> jax.Array:
    """Tokens [B] a pattern may have: of an encoder-decoder row only generated ones."""
    if context.source.shape[1] == 0:
        return context.length
    return context.length - context.begin


@dataclasses.dataclass(frozen=True)
class PromptLookup(Modelless):
    """Proposes what followed the longest earlier occurrence of the current suffix.

    A match needs at least `shortest` tokens and looks at no more than `longest`; without one
    nothing is proposed.
    """

    length: int
    shortest: int = 1
    longest: int = 8
    writers: ClassVar[tuple[str, ...]] = ("copy",)

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"shortest is {self.shortest} and longest {self.longest}; "
                "prompt lookup needs 1 <= shortest <= longest"
            )

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        joined, length = text(context, spare=0)
        begin, size = longest_match(joined, length, pattern_length(context), self.longest)
        found = size >= self.shortest
        tokens = window(joined, begin, self.length)
        draft = Draft(
            tokens=tokens,
            length=jnp.where(found, jnp.minimum(self.length, length - begin), 0),
            probs=None,
            source=jnp.zeros_like(tokens),
            calls={},
            stop_reason=jnp.where(found, LENGTH, NO_MATCH),
        )
        return draft, caches


@dataclasses.dataclass(frozen=True)
class MaxGram(Modelless):
    """Max-Gram: copies after the longest match, again and again, then bigram steps.

    Always proposes exactly `length` tokens when `table` names a fitted n-gram table; without one
    the draft ends where nothing matches.
    """

    length: int
    table: str | None = "ngram"
    longest: int = 32
    writers: ClassVar[tuple[str, ...]] = ("copy", "bigram")

    @property
    def tables(self) -> tuple[str, ...]:
        return () if self.table is None else (self.table,)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        joined, length = text(context, spare=self.length)
        joined, copied = self._copy(joined, length, context)
        best = None if self.table is None else params[self.table]["best"]
        tokens = window(joined, length, self.length)
        if best is not None:
            tokens = fill(tokens, copied, last_token(context), best)
        draft = Draft(
            tokens=tokens,
            length=copied if best is None else jnp.full_like(copied, self.length),
            probs=None,
            source=(jnp.arange(self.length) >= copied[:, None]).astype(jnp.int32),
            calls={},
            stop_reason=jnp.where((copied == 0) & (best is None), NO_MATCH, LENGTH),
        )
        return draft, caches

    def _copy(
        self, joined: jax.Array, length: jax.Array, context: Context
    ) -> tuple[jax.Array, jax.Array]:
        """The text with copied tokens appended [B, N], and their number [B].

        A copy that reaches the end of the text early is followed by a search on the longer text.
        """
        pattern = pattern_length(context)

        def more(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            return jnp.any(carry[2])

        def search(
            carry: tuple[jax.Array, jax.Array, jax.Array],
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            joined, copied, going = carry
            end = length + copied
            begin, size = longest_match(joined, end, pattern + copied, self.longest)
            going &= size > 0
            count = jnp.minimum(end - begin, self.length - copied) * going
            joined = append(joined, end, window(joined, begin, self.length), count)
            copied += count
            return joined, copied, going & (copied < self.length)

        start = (joined, jnp.zeros_like(length), context.active)
        joined, copied, _ = jax.lax.while_loop(more, search, start)
        return joined, copied


def fill(tokens: jax.Array, copied: jax.Array, last: jax.Array, best: jax.Array) -> jax.Array:
    """Replaces tokens [B, K] beyond `copied` by greedy bigram steps; `last` [B] comes before."""

    def step(previous: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        index, token = at
        token = jnp.where(index < copied, token, best[previous])
        return token, token

    _, filled = jax.lax.scan(step, last, (jnp.arange(tokens.shape[1]), tokens.swapaxes(0, 1)))
    return filled.swapaxes(0, 1)
