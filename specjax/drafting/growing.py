"""Trees that are grown level by level, from the laws of the nodes that the next level hangs on.

Levels end where no row needs another: at the end of the rows, or of all paths of their texts.
Cai et al. (2024) and Chen et al., "Sequoia" (2024) for trees of a fixed shape; Li et al.,
"EAGLE-2" (2024) for those of the likeliest nodes (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.core import fields
from specjax.core.adjustment import Adjusting, adjusting
from specjax.core.context import Context, fold
from specjax.core.distribution import Distribution, OneHot, WithoutReplacement
from specjax.core.draft import Draft
from specjax.core.masked import masked_step
from specjax.core.proposing import draw_in_order
from specjax.core.spec import Spec
from specjax.drafting.shape import Shaped
from specjax.sampling import Sampling, adjust, largest

Feed = Callable[[int, jax.Array, Any], tuple[jax.Array, Any]]
"""Logits [B, m, V] behind the m nodes of a level that have children, and what feeding them changed.

Of the level's depth, the tokens [B, G] of all nodes so far and what the level above left."""


@dataclasses.dataclass(frozen=True)
class Growing(Shaped):
    """A tree of a fixed shape, or of its most probable nodes."""

    nodes: int = fields.integer(
        0, least=0, help="most probable nodes, which the target reads; 0: all, as drawn"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.shape.size
        if self.nodes > size:
            raise ValueError(f"nodes is {self.nodes}; it must be at most {size}, as the tree has")

    @property
    def fed(self) -> tuple[int, ...]:
        """Of how many nodes the laws are needed, level by level; the pending token first."""
        shape = self.shape
        return 1, *(len(shape.fed(depth)) for depth in range(shape.levels - 1))

    def _grown_spec(self, **given: Any) -> Spec:
        """What all drafts of such a tree have in common, and what is given."""
        shape = self.shape
        known = {
            "width": self.nodes or shape.size,
            "parents": () if self.nodes else shape.parents,
        }
        return self._tree_spec(**{**known, **given})

    def grow(
        self,
        feed: Feed,
        logits: jax.Array,
        carry: Any,
        context: Context,
        eos: tuple[int, ...],
        keys: jax.Array,
    ) -> Grown:
        """All levels, from the logits [B, V] behind the pending token; `eos` ends a text."""
        growth = _Growth(feed, eos, adjusting(context, logits.shape[-1]), keys)
        return self._from(growth, 0, logits[:, None], self._seed(logits, carry, context))

    def _seed(self, logits: jax.Array, carry: Any, context: Context) -> Grown:
        """No level yet."""
        shape, (rows, vocabulary) = self.shape, logits.shape
        laws, certain = len(shape.inner) + 1, self._certain(context.options.sampling)
        return Grown(
            tokens=jnp.zeros((rows, shape.size), jnp.int32),
            ended=jnp.zeros((rows, shape.size), bool),
            drawn=None if certain else jnp.zeros((rows, laws, shape.most), jnp.int32),
            probs=None if certain else jnp.zeros((rows, laws, vocabulary), jnp.float32),
            score=jnp.zeros((rows, shape.size), jnp.float32) if self.nodes else None,
            levels=jnp.zeros((rows,), jnp.int32),
            going=context.most > 0,
            carry=carry,
        )

    def _from(self, growth: _Growth, depth: int, logits: jax.Array, grown: Grown) -> Grown:
        """The level of nodes that hang on those of logits [B, m, V], and all below it.

        Each level is a loop of at most one turn within that of the level above.
        """
        shape = self.shape
        grown = self._level(growth, depth, logits, grown)
        if depth + 1 == shape.levels:
            return grown

        def deeper(grown: Grown) -> Grown:
            logits, carry = growth.feed(depth, grown.tokens, grown.carry)
            return self._from(growth, depth + 1, logits, grown.replace(carry=carry))

        return masked_step(jnp.any(grown.going), deeper, grown)

    def _level(self, growth: _Growth, depth: int, logits: jax.Array, grown: Grown) -> Grown:
        """With the nodes of a level from the logits [B, m, V] of those they hang on."""
        shape, context = self.shape, growth.settings.context
        settings = context.options.sampling
        nodes = np.array(shape.level(depth))
        parents = np.array(shape.parents)[nodes]
        laws, ranks = np.array(shape.laws)[nodes], np.array(shape.ranks)[nodes]
        first, probs, score = laws[0], grown.probs, grown.score
        paths = np.array([shape.path(node) for node in dict.fromkeys(parents.tolist())], int)
        logits = growth.settings.at(logits, grown.tokens[:, paths], jnp.array(depth))
        if probs is None:
            drawn = largest(logits, ranks.max() + 1)
        else:
            adjusted = adjust(logits, settings)
            numbers = first + jnp.arange(logits.shape[1])
            own_keys = jax.vmap(fold, (None, 0), out_axes=1)(growth.keys, numbers)
            drawn = draw_in_order(own_keys, adjusted, shape.most)
            probs = _put(probs, adjusted, first)
        tokens = drawn[:, laws - first, ranks]
        if score is not None:
            chance = jnp.take_along_axis(_log_probability(logits, settings), drawn, axis=-1)
            own = chance[:, laws - first, ranks]
            score = _put(score, own + (score[:, parents] if depth else 0.0), nodes[0])
        ended = jnp.isin(tokens, jnp.array(growth.eos))
        ended = _put(grown.ended, ended | (grown.ended[:, parents] if depth else False), nodes[0])
        fed = np.array(shape.fed(depth), int)
        more = (depth + 1 < context.most) & jnp.any(~ended[:, fed], axis=1)
        return grown.replace(
            tokens=_put(grown.tokens, tokens, nodes[0]),
            ended=ended,
            drawn=None if grown.drawn is None else _put(grown.drawn, drawn, first),
            probs=probs,
            score=score,
            levels=grown.levels + grown.going,
            going=grown.going & more,
        )

    def draft(self, grown: Grown) -> Draft:
        """The tree, or its likeliest nodes; each row has the levels that it needed itself."""
        shape, tokens = self.shape, grown.tokens
        sizes = jnp.array([0, *(shape.level(depth).stop for depth in range(shape.levels))])
        length, fed = sizes[grown.levels], sizes[jnp.maximum(grown.levels - 1, 0)]
        parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
        was_fed = jnp.arange(shape.size) < fed[:, None]
        draft = Draft.chain(tokens, length, self._distribution(grown)).replace(
            parents=parents, slots=jnp.where(was_fed, jnp.array(shape.slots, jnp.int32), -1)
        )
        return draft if grown.score is None else likeliest(draft, grown.score, self.nodes)

    def _certain(self, settings: Sampling) -> bool:
        """Whether the likeliest tokens are the children, not draws.

        To choose among drawn nodes by their probability would make the chosen ones other draws.
        """
        return settings.greedy or self.nodes > 0

    def _distribution(self, grown: Grown) -> Distribution:
        if grown.probs is None or grown.drawn is None:
            return OneHot(grown.tokens)
        shape = self.shape
        return WithoutReplacement.from_draws(grown.probs, grown.drawn, shape.laws, shape.ranks)


@dataclasses.dataclass(frozen=True)
class _Growth:
    """What all levels of a tree have in common."""

    feed: Feed
    eos: tuple[int, ...]  # of the target: what ends a text
    settings: Adjusting
    keys: jax.Array  # [B]


class Grown(struct.PyTreeNode):
    """Carry: the levels so far of a tree of G nodes and D laws; what is not grown holds zeros."""

    tokens: jax.Array  # [B, G] int32
    ended: jax.Array  # [B, G] bool: the text ends with the node or above it
    drawn: jax.Array | None  # [B, D, W] int32: of each law; None: certain tokens
    probs: jax.Array | None  # [B, D, V] float32; None: certain tokens
    score: jax.Array | None  # [B, G] float32: logarithm of the drafter's probability of the path
    levels: jax.Array  # [B] int32: those that the row needed, the drafter's calls
    going: jax.Array  # [B] bool: it needs the next one
    carry: Any  # of `Feed`: a cache, or nothing that changes


def _put(rows: jax.Array, values: jax.Array, first: int) -> jax.Array:
    """rows [B, N, ...] with values [B, n, ...] from column `first` on."""
    return jax.lax.dynamic_update_slice_in_dim(rows, values, int(first), axis=1)


def _log_probability(logits: jax.Array, settings: Sampling) -> jax.Array:
    """Of every token; a greedy drafter's plain one, which is not certain of its argmax."""
    if settings.greedy:
        return jax.nn.log_softmax(logits, axis=-1)
    return jnp.log(adjust(logits, settings))


def likeliest(draft: Draft, score: jax.Array, count: int) -> Draft:
    """The tree's `count` nodes of largest score [B, K], in their order; tokens must be certain.

    No node scores more than its parent, and of equals the first count: parents are kept. Those at
    and beyond the draft's length come last.
    """
    score = jnp.where(jnp.arange(draft.width) < draft.length[:, None], score, -jnp.inf)
    kept = jnp.sort(jax.lax.top_k(score, count)[1], axis=1)
    rows = jnp.arange(len(kept))[:, None]
    place = jnp.zeros_like(draft.tokens).at[rows, kept].set(jnp.arange(count))
    parents = draft.above[rows, kept]
    parents = jnp.where(parents < 0, -1, place[rows, parents])
    kept_draft = Draft.chain(draft.tokens[rows, kept], jnp.minimum(draft.length, count))
    return kept_draft.replace(parents=parents, slots=draft.places[rows, kept])
