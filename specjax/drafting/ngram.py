"""Unigram and bigram drafters over fitted count tables, as chains and as trees.

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
import numpy as np

from specjax.contracts import fields
from specjax.contracts.context import Context, fold_keys, get_pending_tokens
from specjax.contracts.distribution import make_distribution, propose
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Drafter, Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import bind_processors
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec, TreeSpec
from specjax.drafting.shape import (
    Shape,
    check_children,
    check_shape,
    length_field,
    make_shape,
    parents_field,
    widths_field,
)
from specjax.sampling import find_largest
from specjax.verification.whole import TreeReader

Table = dict[str, jax.Array]


def bigram_logits(table: Table, previous: jax.Array) -> jax.Array:
    """Log probabilities [B, V] of the token after previous [B].

    Unseen contexts back off to the unigram.

    Successors beyond the M stored ones count as unseen, so this is exactly the distribution that
    tokens are drawn from, normalized over the table.
    """
    vocabulary, delta = table["unigram"].shape[0], table["smoothing"]
    ids, counts = table["ids"][previous], table["counts"][previous]
    total = jnp.sum(counts, axis=1, keepdims=True) + delta * vocabulary
    base = jnp.broadcast_to(jnp.log(delta / total), (previous.shape[0], vocabulary))
    rows = jnp.arange(previous.shape[0])[:, None]
    bigram = base.at[rows, ids].set(jnp.log((counts + delta) / total), mode="drop")
    return jnp.where(counts[:, :1] > 0, bigram, table["unigram"])


@dataclasses.dataclass(frozen=True)
class _Counted(Drafter):
    """Tokens of an n-gram distribution under the target's settings: at temperature 0 the argmax.

    The nodes of a tree are the most probable successors at any temperature.
    """

    length: int | None = length_field()
    table: str = fields.counts()
    _: dataclasses.KW_ONLY
    widths: tuple[int, ...] = widths_field()
    parents: tuple[int, ...] = parents_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shape(self.length, self.widths, self.parents)

    @property
    def shape(self) -> Shape | None:
        """The shape of the tree; None: a chain."""
        return None if self.length else make_shape(self.widths, self.parents)

    @property
    def spec(self) -> Spec:
        name, shape = DRAFTERS.get_name(type(self)), self.shape
        return Spec(
            width=shape.size if shape else self.length or 0,
            resources=(self.table,),
            writers=(name,),
            always=True,
            tree=TreeSpec(shape.levels, shape.parents) if shape else None,
        )

    @property
    def reader(self) -> Reader | None:
        return TreeReader() if self.shape else None

    def check(self, env: Env) -> None:
        """Refuses more children than there are tokens.

        Raises:
          ValueError: saying how many.
        """
        given = "widths" if self.widths else "parents"
        check_children(self.shape.most if self.shape else 0, given, env.target.info.vocab_size)

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        """Logarithms [B, V] of the probabilities after previous [B]."""
        raise NotImplementedError

    def best(self, table: Table, previous: jax.Array, count: int) -> jax.Array:
        """The `count` most probable tokens [..., count] after previous [...], all different."""
        raise NotImplementedError

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        table = env.params[self.table]
        if self.shape:
            draft = self._tree(self.shape, table, context)
        else:
            draft = self._chain(table, context, keys)
        return draft, caches, memory, {}

    def _chain(self, table: Table, context: Context, keys: jax.Array) -> Draft:
        sampling = context.options.sampling
        settings = bind_processors(context, len(table["best"]))

        def step(drafted: jax.Array, index: jax.Array) -> tuple[jax.Array, Any]:
            previous = jnp.where(index > 0, drafted[:, index - 1], get_pending_tokens(context))
            if sampling.greedy and not settings:
                token, probs = self.best(table, previous, 1)[..., 0], None
            else:
                logits = settings.process_next(self.logits(table, previous), drafted, index)
                token, probs = propose(logits, sampling, fold_keys(keys, index))
            return drafted.at[:, index].set(token), (token, probs)

        nothing = jnp.zeros((len(keys), self.spec.width), jnp.int32)
        _, (tokens, probs) = jax.lax.scan(step, nothing, jnp.arange(self.spec.width))
        tokens, probs = jax.tree.map(lambda x: x.swapaxes(0, 1), (tokens, probs))
        return Draft.chain(tokens, distribution=make_distribution(tokens, probs))

    def _tree(self, shape: Shape, table: Table, context: Context) -> Draft:
        above, first = get_pending_tokens(context)[:, None], -1
        levels = []
        for depth in range(shape.levels):
            nodes = np.array(shape.level(depth))
            ranks = np.array(shape.ranks)[nodes]
            children = self.best(table, above, ranks.max() + 1)
            levels.append(children[:, np.array(shape.parents)[nodes] - first, ranks])
            above, first = levels[-1], nodes[0]
        tokens = jnp.concatenate(levels, axis=1)
        parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
        return Draft.chain(tokens).replace(parents=parents)


@DRAFTERS.register("unigram", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Unigram(_Counted):
    """The most probable tokens of all, from fitted counts."""

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        shape = (previous.shape[0], table["unigram"].shape[0])
        return jnp.broadcast_to(table["unigram"], shape)

    def best(self, table: Table, previous: jax.Array, count: int) -> jax.Array:
        return jnp.broadcast_to(find_largest(table["unigram"], count), (*previous.shape, count))


@DRAFTERS.register("bigram", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Bigram(_Counted):
    """The most probable successors of the last token, from fitted counts."""

    def logits(self, table: Table, previous: jax.Array) -> jax.Array:
        return bigram_logits(table, previous)

    def best(self, table: Table, previous: jax.Array, count: int) -> jax.Array:
        if count == 1:
            return table["best"][previous][..., None]
        return successors(table, previous, count)


def successors(table: Table, previous: jax.Array, count: int) -> jax.Array:
    """The `count` most probable successors [B, N, count] of previous [B, N], all different.

    First the seen successors by frequency, then the most frequent tokens of all, because unseen
    successors are equally probable by the counts of pairs.
    """
    ids, counts = table["ids"][previous, :count], table["counts"][previous, :count]
    often = find_largest(table["unigram"], count)
    repeated = jnp.any(often[:, None] == ids[..., None, :], axis=-1)
    tokens = jnp.concatenate([ids, jnp.broadcast_to(often, repeated.shape)], axis=-1)
    wanted = jnp.concatenate([counts > 0, ~repeated], axis=-1)
    best = jnp.argsort(~wanted, axis=-1, stable=True)[..., :count]
    return jnp.take_along_axis(tokens, best, axis=-1).astype(jnp.int32)
