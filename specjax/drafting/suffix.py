"""Drafts continuations of earlier matches, in the row's own text and in earlier texts.

Oliaro et al., "SuffixDecoding" (2024), with a sweep over the row and a suffix array of the earlier
texts for its trees (docs/methods/suffix.md). The earlier texts are a tree of arrays that
`data.corpus` makes, passed like any model's parameters:

    tokens  [N] int32  texts one after another, -1 before, between and after them order   [N] int32
    start positions of suffixes, sorted by their first tokens
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.draft import LENGTH, NO_MATCH, STOPPED, Draft
from specjax.contracts.drafter import STOP, Drafter, Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.fields import CORPUS
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec
from specjax.drafting.branches import (
    branched_reader,
    branched_spec,
    branches_field,
    check_branches,
    make_branches,
)
from specjax.drafting.copying import copy_continuations, match_sizes, pattern_length, text
from specjax.sampling import argmax

LONGEST = 30
"""Most tokens of a match: comparisons are weighted by powers of two."""

UNSEEN = 0.5
"""Pseudo-count of other continuations (Krichevsky and Trofimov)."""


class Found(struct.PyTreeNode):
    """The longest match in one text, and its continuations at several positions."""

    size: jax.Array  # [B] int32: tokens of the match, 0 for none
    tokens: jax.Array  # [B, S, K] int32: continuations, -1 after the end of a text
    alive: jax.Array  # [B, S] bool: the position exists


@DRAFTERS.register("suffix", example={"length": 4, "corpus": True})
@dataclasses.dataclass(frozen=True)
class Suffix(Drafter):
    """The most frequent continuation of the longest match; longer matches draft more."""

    length: int = fields.draft_length(help="drafted tokens at most")
    corpus: bool = fields.flag(help="search earlier texts too")
    factor: str = fields.number(
        2.0, bounds="(0, inf)", traced="factor", help="drafted tokens per token of the match"
    )
    floor: str = fields.number(
        0.1, bounds="[0, 1]", traced="floor", help="chance below which a token is not drafted"
    )
    longest: int = fields.integer(16, most=LONGEST, help="most tokens of a match")
    places: int = fields.integer(16, most=64, help="most positions of a match")
    branches: int = branches_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_branches(self.branches, self.length)

    @property
    def spec(self) -> Spec:
        own = {"resources": (CORPUS,) if self.corpus else (), "writers": ("copy", "corpus")}
        return branched_spec(self.branches, self.length, **own)

    @property
    def reader(self) -> Reader | None:
        return branched_reader(self.branches)

    def check(self, env: Env) -> None:
        """Refuses anything but a corpus.

        Raises:
          ValueError: saying what it must be.
        """
        if not self.corpus:
            return
        table = env.params[CORPUS]
        known = isinstance(table, dict) and {"tokens", "order"} <= table.keys()
        if not known or table["tokens"].shape != table["order"].shape:
            raise ValueError(f"{CORPUS!r} must be the table of a specjax.Corpus")

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        found = [self._in_row(context)]
        if self.corpus:
            found.append(self._in_corpus(env.params[CORPUS], context))
        numbers = context.options.numbers
        parts = [plan_lengths(one, numbers["factor"], numbers["floor"]) for one in found]
        length, score = (jnp.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        every = jnp.concatenate([one.tokens for one in found], axis=1)
        tokens, counts, writers = [], [], []
        for _ in range(self.branches):
            best = argmax(score)[:, None]
            tokens.append(jnp.take_along_axis(every, best[..., None], axis=1)[:, 0])
            counts.append(jnp.take_along_axis(length, best, axis=1)[:, 0])
            writers.append(jnp.broadcast_to(best // self.places, tokens[-1].shape))
            # The next continuation begins with another token.
            same = every[..., 0] == tokens[-1][:, :1]
            score, length = jnp.where(same, -1.0, score), jnp.where(same, 0, length)
        matched = jnp.any(jnp.stack([one.size for one in found]) > 0, axis=0)
        stop = jnp.where(counts[0] == self.length, LENGTH, jnp.where(matched, STOPPED, NO_MATCH))
        draft = make_branches([jnp.maximum(one, 0) for one in tokens], counts, writers)
        return draft, caches, memory, {STOP: stop}

    def _in_row(self, context: Context) -> Found:
        """The last positions of the longest match in the row's own text."""
        joined, length = text(context, spare=0)
        sizes = match_sizes(joined, length, pattern_length(context), self.longest)
        size = jnp.max(sizes, axis=1)
        place = jnp.arange(joined.shape[1], dtype=jnp.float32)  # top_k is faster on these
        places = jnp.where((sizes == size[:, None]) & (sizes > 0), place, -1.0)
        last = jax.lax.top_k(places, min(self.places, joined.shape[1]))[0].astype(jnp.int32)
        last = jnp.pad(last, ((0, 0), (0, self.places - last.shape[1])), constant_values=-1)
        return Found(size, copy_continuations(joined, last + 1, length, self.length), last >= 0)

    def _in_corpus(self, corpus: dict[str, jax.Array], context: Context) -> Found:
        """Positions of the longest match in earlier texts, evenly spaced in suffix order."""
        first, end = suffix_ranges(corpus, context.tokens, context.length, self.longest)
        size = jnp.sum(end > first, axis=1)  # a longer match implies the shorter ones
        at = jnp.maximum(size - 1, 0)[:, None]
        first, end = (jnp.take_along_axis(x, at, axis=1) for x in (first, end))
        number, step = end - first, jnp.arange(self.places)
        chosen = first + jnp.where(number > self.places, step * number // self.places, step)
        begin = _of(corpus["order"], chosen) + size[:, None]
        following = _of(corpus["tokens"], begin[..., None] + jnp.arange(self.length))
        return Found(size, following, (step < number) & (size > 0)[:, None])


def suffix_ranges(
    corpus: dict[str, jax.Array], tokens: jax.Array, length: jax.Array, most: int
) -> tuple[jax.Array, jax.Array]:
    """The ranges of suffixes that begin with the last tokens of each row.

    For the last 1 .. `most` of tokens[:, :length] [B, L]: the first index [B, most] and the index
    after the last, which are equal without a match. Runs two parallel binary searches for each.
    """
    size = jnp.arange(1, most + 1)
    step = jnp.arange(most)
    places = length[:, None, None] - size[:, None] + step
    wanted = jnp.take_along_axis(tokens[:, None], places, axis=2, mode="clip")
    weight = jnp.where(step < size[:, None], 1 << (most - 1 - step), 0)
    below = jnp.array([0, 1])[:, None, None]  # of matching suffixes: none, or all

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) // 2
        there = _of(corpus["tokens"], _of(corpus["order"], middle)[..., None] + step)
        # The first difference outweighs all later ones.
        order = jnp.sum(jnp.sign(there - wanted) * weight, axis=-1)
        before = (order < below) & (low < high)
        return jnp.where(before, middle + 1, low), jnp.where(before, high, middle)

    count = corpus["order"].shape[0]
    low = jnp.zeros((2, length.shape[0], most), jnp.int32)
    low, _ = jax.lax.fori_loop(0, count.bit_length(), halve, (low, jnp.full_like(low, count)))
    return low[0], jnp.where(size <= length[:, None], low[1], low[0])


def plan_lengths(found: Found, factor: jax.Array, floor: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draft length [B, S] of each continuation, and its expected accepted tokens [B, S].

    The probability of a token is the share of positions that continue with it among those that
    agree so far, multiplied along the continuation.
    """
    tokens, width = found.tokens, found.tokens.shape[-1]
    step = jnp.arange(width)
    differs = tokens[:, :, None] != tokens[:, None]
    agreed = jnp.min(jnp.where(differs, step, width), axis=-1)  # [B, S, S]
    with_it = (agreed[..., None] > step) & found.alive[:, None, :, None]
    count = jnp.sum(with_it, axis=2, dtype=jnp.float32)  # [B, S, K]
    all_places = jnp.sum(found.alive, axis=1, dtype=jnp.float32)[:, None, None]
    before = jnp.concatenate([jnp.broadcast_to(all_places, count[..., :1].shape), count], axis=2)
    chance = jnp.cumprod(count / (before[..., :-1] + UNSEEN), axis=2)
    end = jnp.min(jnp.where(tokens < 0, step, width), axis=-1)  # of the text
    most = jnp.minimum(end, jnp.floor(factor * found.size[:, None]))
    drafted = (step < most[..., None]) & (chance >= floor) & found.alive[..., None]
    return jnp.sum(drafted, axis=2), jnp.sum(chance * drafted, axis=2)


def _of(values: jax.Array, places: jax.Array) -> jax.Array:
    """values [N] at positions [...], clipped to the last one."""
    return jnp.take(values, places, mode="clip")
