"""Copying from context: prompt lookup and Max-Gram.

Chen et al., "Cascade Speculative Drafting" (2024), section 3 (Max-Gram); prompt lookup is its
one-search form. Both search the prompt (including encoder input) and the generated text.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.draft import LENGTH, NO_MATCH, Draft
from specjax.contracts.drafter import STOP, Drafter, Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import NOT_A_TOKEN, Caches, append, slice_window
from specjax.contracts.spec import Spec
from specjax.drafting.branches import (
    branched_reader,
    branched_spec,
    branches_field,
    check_branches,
    make_branches,
)


def text(context: Context, spare: int) -> tuple[jax.Array, jax.Array]:
    """Prompt followed by generated tokens, compact, [B, N], and its length [B].

    Encoder-decoder rows read source, then what follows the decoder start token. `spare` free
    slots at the end leave room for a draft.
    """
    if context.encoder_tokens.shape[1] == 0:
        return jnp.pad(context.tokens, ((0, 0), (0, spare))), context.length
    width = context.encoder_tokens.shape[1]
    size = width + context.tokens.shape[1] + spare
    slot = jnp.arange(size)
    offset = context.begin - context.encoder_length
    both = jnp.concatenate([context.encoder_tokens, context.tokens], axis=1)
    index = jnp.where(slot < context.encoder_length[:, None], slot, width + slot + offset[:, None])
    joined = jnp.take_along_axis(both, index, axis=1, mode="clip")
    return joined, context.encoder_length + context.length - context.begin


def match_sizes(joined: jax.Array, length: jax.Array, pattern: jax.Array, most: int) -> jax.Array:
    """Length [B, N] of the match between tokens ending at each position and the last tokens.

    The last tokens of joined[:, :length], at most min(most, pattern); 0 from the last position on.
    One sweep per suffix token over [B, N] booleans: O(N) memory.
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
    return jax.lax.while_loop(alive, sweep, start)[2]


def longest_match(
    joined: jax.Array, length: jax.Array, pattern: jax.Array, most: int
) -> tuple[jax.Array, jax.Array]:
    """The position of an earlier occurrence of the longest suffix of joined[:, :length].

    Returns `begin` [B], the position after the earliest of the longest matches, and `size` [B],
    the length of the match, at most min(most, pattern).
    """
    return best_match(match_sizes(joined, length, pattern, most))


def best_match(sizes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The position [B] after the earliest of the largest sizes [B, N], and that size [B]."""
    best = jnp.argmax(sizes, axis=1)
    return best + 1, jnp.take_along_axis(sizes, best[:, None], axis=1)[:, 0]


def copy_continuations(
    joined: jax.Array, begin: jax.Array, length: jax.Array, count: int
) -> jax.Array:
    """`count` tokens [B, S, count] of joined [B, N] from each `begin` [B, S] on.

    After the end of the text, `length` [B], they start over, as if the text repeated.
    """
    period = jnp.maximum(length[:, None] - begin, 1)[..., None]
    places = begin[..., None] + jnp.arange(count) % period
    return jnp.take_along_axis(joined[:, None], places, axis=2, mode="clip")


def pattern_length(context: Context) -> jax.Array:
    """Longest pattern [B]; for an encoder-decoder row only generated tokens."""
    if context.encoder_tokens.shape[1] == 0:
        return context.length
    return context.length - context.begin


@DRAFTERS.register("prompt_lookup", example={"length": 4, "longest": 8})
@dataclasses.dataclass(frozen=True)
class PromptLookup(Drafter):
    """The continuation of the longest earlier occurrence of the last tokens, if any."""

    length: int = fields.draft_length(help="drafted tokens")
    shortest: int = fields.integer(1, help="fewest tokens of a match")
    longest: int = fields.integer(8, help="most tokens of a match to compare")
    branches: int = branches_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"shortest is {self.shortest} and longest {self.longest}; "
                "prompt lookup needs 1 <= shortest <= longest"
            )
        check_branches(self.branches, self.length)

    @property
    def spec(self) -> Spec:
        return branched_spec(self.branches, self.length, writers=("copy",))

    @property
    def reader(self) -> Reader | None:
        return branched_reader(self.branches)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        joined, length = text(context, spare=0)
        sizes = match_sizes(joined, length, pattern_length(context), self.longest)
        if self.branches > 1:
            tokens, counts = self._continuations(joined, length, sizes)
        else:
            begin, size = best_match(sizes)
            left = jnp.minimum(self.length, length - begin)
            tokens = [slice_window(joined, begin, self.length)]
            counts = [jnp.where(size >= self.shortest, left, 0)]
        stop = jnp.where(counts[0] > 0, LENGTH, NO_MATCH)
        return make_branches(tokens, counts), caches, memory, {STOP: stop}

    def _continuations(
        self, joined: jax.Array, length: jax.Array, sizes: jax.Array
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Continuations of the longest matches with distinct first tokens, and their lengths."""
        sizes = jnp.where(sizes >= self.shortest, sizes, 0)
        following = jnp.roll(joined, -1, axis=1)
        tokens, counts = [], []
        for _ in range(self.branches):
            begin, size = best_match(sizes)
            tokens.append(copy_continuations(joined, begin[:, None], length, self.length)[:, 0])
            counts.append((size > 0) * self.length)
            sizes = jnp.where(following == tokens[-1][:, :1], 0, sizes)
        return tokens, counts


@DRAFTERS.register("max_gram", example={"length": 4, "table": "ngram"})
@dataclasses.dataclass(frozen=True)
class MaxGram(Drafter):
    """Copies after the longest match, again and again, then bigram steps (Max-Gram).

    Always proposes exactly `length` tokens when `table` names a fitted n-gram table. Without one
    (None, from Python) the draft ends where nothing matches.
    """

    length: int = fields.draft_length(help="drafted tokens")
    table: str | None = fields.counts(optional=True)
    longest: int = fields.integer(32, help="most tokens of a match to compare")

    @property
    def spec(self) -> Spec:
        resources = () if self.table is None else (self.table,)
        writers = ("copy", "bigram")
        return Spec(self.length, resources=resources, writers=writers, always=bool(self.table))

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        joined, length = text(context, spare=self.length)
        joined, copied = self._copy(joined, length, context)
        tokens = slice_window(joined, length, self.length)
        count, stop = copied, jnp.where(copied == 0, NO_MATCH, LENGTH)
        if self.table is not None:
            tokens = fill(
                tokens, copied, get_pending_tokens(context), env.params[self.table]["best"]
            )
            count, stop = jnp.full_like(copied, self.length), jnp.full_like(copied, LENGTH)
        writer = (jnp.arange(self.length) >= copied[:, None]).astype(jnp.int32)
        return Draft.chain(tokens, count, drafted_by=writer), caches, memory, {STOP: stop}

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
            joined = append(joined, end, slice_window(joined, begin, self.length), count)
            copied += count
            return joined, copied, going & (copied < self.length)

        start = (joined, jnp.zeros_like(length), context.active)
        joined, copied, _ = jax.lax.while_loop(more, search, start)
        return joined, copied


def fill(tokens: jax.Array, copied: jax.Array, last: jax.Array, best: jax.Array) -> jax.Array:
    """Replaces tokens [B, K] beyond `copied` by greedy bigram steps; `last` [B] precedes them."""

    def step(previous: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        index, token = at
        token = jnp.where(index < copied, token, best[previous])
        return token, token

    _, filled = jax.lax.scan(step, last, (jnp.arange(tokens.shape[1]), tokens.swapaxes(0, 1)))
    return filled.swapaxes(0, 1)
