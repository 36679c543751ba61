"""Unigram and bigram drafters over fitted count tables.

See docs/methods/drafters.md, "Unigram and bigram".

A table is a tree of arrays (see `training.ngram.fit`), passed like any model's parameters:

    unigram  [V] float32     log of the smoothed unigram law
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

from specjax.drafting.base import (
    LENGTH,
    Caches,
    Context,
    Draft,
    Modelless,
    Models,
    fold,
    last_token,
    propose,
)

Table = dict[str, jax.Array]


def bigram_logits(table: Table, previous: jax.Array) -> jax.Array:
    """Log law [B, V] of the token after previous [B]; unseen contexts back off to the unigram.

    Successors beyond the M kept ones are counted as unseen, so this is the exact law that tokens
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
class NGram(Modelless):
    """Proposes `length` tokens from the bigram (`order=2`) or unigram (`order=1`) law.

    `table` names the tree in `params`. The law is adjusted like the target's: at temperature 0
    each proposal is the most likely token.
    """

    length: int
    order: int = 2
    table: str = "ngram"

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise ValueError(f"order is {self.order}; an n-gram drafter has order 1 or 2")

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    @property
    def writers(self) -> tuple[str, ...]:
        return ("unigram" if self.order == 1 else "bigram",)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        table, settings = params[self.table], context.options.sampling

        def step(previous: jax.Array, index: jax.Array) -> tuple[jax.Array, Any]:
            if settings.greedy and self.order == 2:
                token, law = table["best"][previous], None
            else:
                token, law = propose(self._logits(table, previous), settings, fold(keys, index))
            return token, (token, law)

        _, (tokens, laws) = jax.lax.scan(step, last_token(context), jnp.arange(self.length))
        tokens = tokens.swapaxes(0, 1)
        draft = Draft(
            tokens=tokens,
            length=jnp.full(tokens.shape[:1], self.length, jnp.int32),
            probs=None if laws is None else laws.swapaxes(0, 1),
            source=jnp.zeros_like(tokens),
            calls={},
            stop_reason=jnp.full(tokens.shape[:1], LENGTH, jnp.int32),
        )
        return draft, caches

    def _logits(self, table: Table, previous: jax.Array) -> jax.Array:
        if self.order == 2:
            return bigram_logits(table, previous)
        shape = (previous.shape[0], table["unigram"].shape[0])
        return jnp.broadcast_to(table["unigram"], shape)
