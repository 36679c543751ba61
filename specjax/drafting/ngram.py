"""Unigram and bigram drafters over fitted count tables.

See docs/methods/drafters.md, "Unigram and bigram".

A table is a tree of arrays (see `training.ngram.fit`), passed like any model's parameters:

    unigram  [V] float32     log of the smoothed unigram distribution
    best     [V] int32       most likely successor of each token
    ids      [V, M] int32    the M most frequent successors, padded with V
    counts   [V, M] float32  how often each was seen, padded with 0
    smoothing [] float32     delta of q = (n + delta) / (N + delta V)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import adjusting
from specjax.core.context import Context, fold, last_token
from specjax.core.draft import Draft
from specjax.core.drafter import Drafter, Log, Memory
from specjax.core.env import Env
from specjax.core.proposing import drawn_from, propose
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.sampling import argmax

Table = dict[str, jax.Array]


def bigram_logits(table: Table, previous: jax.Array) -> jax.Array:
    """Log probabilities [B, V] of the token after previous [B].

    Unseen contexts back off to the unigram.

    Successors beyond the M kept ones are counted as unseen, so this is exactly what tokens
    are drawn from, normalised over what the table holds.
    """
    vocabulary, delta = table["unigram"].shape[0], table["smoothing"]
    ids, counts = table["ids"][previous], table["counts"][previous]
    total = jnp.sum(counts, axis=1, keepdims=True) + delta * vocabulary
    base = jnp.broadcast_to(jnp.log(delta / total), (previous.shape[0], vocabulary))
    rows = jnp.arange(previous.shape[0])[:, None]
    seen = base.at[rows, ids].set(jnp.log((counts + delta) / total), mode="drop")
    return jnp.where(counts[:, :1] > 0, seen, table["unigram"])


@dataclasses.dataclass(frozen=True)
class _Counted(Drafter):
    """Tokens of an n-gram distribution, adjusted like the target's: at temperature 0 the argmax."""

    length: int = fields.draft_length(help="drafted tokens")
    table: str = fields.counts()

    @property
    def spec(self) -> Spec:
        name = DRAFTERS.name_of(type(self))
        return Spec(width=self.length, resources=(self.table,), writers=(name,), always=True)

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        """Logarithms [B, V] of the probabilities behind previous [B]."""
        raise NotImplementedError

    def likeliest(self, table: Table, previous: jax.Array) -> jax.Array:
        """The argmax [B] of the same."""
        raise NotImplementedError

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        table, sampling = env.params[self.table], context.options.sampling
        settings = adjusting(context, len(table["best"]))

        def step(drafted: jax.Array, index: jax.Array) -> tuple[jax.Array, Any]:
            previous = jnp.where(index > 0, drafted[:, index - 1], last_token(context))
            if sampling.greedy and not settings:
                token, probs = self.likeliest(table, previous), None
            else:
                logits = settings.behind(self.logits(table, previous), drafted, index)
                token, probs = propose(logits, sampling, fold(keys, index))
            return drafted.at[:, index].set(token), (token, probs)

        nothing = jnp.zeros((len(keys), self.length), jnp.int32)
        _, (tokens, probs) = jax.lax.scan(step, nothing, jnp.arange(self.length))
        tokens, probs = jax.tree.map(lambda x: x.swapaxes(0, 1), (tokens, probs))
        return Draft.chain(tokens, distribution=drawn_from(tokens, probs)), caches, memory, {}


@DRAFTERS.register("unigram", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Unigram(_Counted):
    """The likeliest tokens of all, from fitted counts."""

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        shape = (previous.shape[0], table["unigram"].shape[0])
        return jnp.broadcast_to(table["unigram"], shape)

    def likeliest(self, table: Table, previous: jax.Array) -> jax.Array:
        return argmax(self.logits(table, previous))


@DRAFTERS.register("bigram", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Bigram(_Counted):
    """The likeliest successors of the last token, from fitted counts."""

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        return bigram_logits(table, previous)

    def likeliest(self, table: Table, previous: jax.Array) -> jax.Array:
        return table["best"][previous]
