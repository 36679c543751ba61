"""A tree that a model drafts, level by level: one call for the nodes of a level.

Levels end where no row needs another: at the end of the rows, or of all paths of their texts.
Cai et al. (2024) and Chen et al., "Sequoia" (2024) for trees of a fixed shape; Li et al.,
"EAGLE-2" (2024) for those of the likeliest nodes (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, feed_last
from specjax.core.context import Context, fold
from specjax.core.distribution import Distribution, OneHot, WithoutReplacement
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Bound, Env
from specjax.core.masked import masked_step
from specjax.core.proposing import draw_in_order
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.on_target import refuse_feature_drafter
from specjax.drafting.shape import Shape, Shaped
from specjax.models.base import Cache
from specjax.sampling import Sampling, adjust, largest

LAG = 2
"""Tokens fed first: where a leaf stood the model has seen neither it nor the token behind it."""


@DRAFTERS.register("neural_tree", example={"widths": (2, 2)})
@dataclasses.dataclass(frozen=True)
class NeuralTree(Shaped):
    """A tree of a small model's tokens, of a fixed shape or of its likeliest nodes."""

    nodes: int = fields.integer(
        0, least=0, help="likeliest nodes of the tree that the target reads; 0: all, as drawn"
    )
    model: str = fields.name("drafter", help="the model that drafts")

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.shape.size
        if self.nodes > size:
            raise ValueError(f"nodes is {self.nodes}; it must be at most {size}, as the tree has")

    @property
    def lag(self) -> int:
        """Tokens fed first."""
        return LAG

    @property
    def spec(self) -> Spec:
        shape = self.shape
        width = self.nodes or shape.size
        fed = (len(shape.fed(depth)) for depth in range(shape.levels - 1))
        first = Call(self.model, self.lag, 1)
        return self._tree_spec(
            width=width,
            reach=max(width, len(shape.inner)),
            calls=(first, *(Call(self.model, count, count) for count in fed)),
            models=(self.model,),
            writers=(self.model,),
            parents=() if self.nodes else shape.parents,
            fed=(self.model,),
        )

    def check(self, env: Env) -> None:
        """Refuses a model that needs the target's states, and more children than there are tokens.

        Raises:
          ValueError: saying what does not fit.
        """
        refuse_feature_drafter(env, self.model)
        self.check_children(env[self.model].vocab_size)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        model = env[self.model]
        logits, cache = self.feed_text(model, caches[self.model], context)
        grown = self._seed(model, cache, context)
        growth = _Growth(model, env.target.eos, cache.length, context, keys)
        grown = self._grow(growth, 0, logits[:, None], grown)
        caches = {**caches, self.model: grown.cache.replace(length=cache.length)}
        runs = calls_of({self.model: grown.levels})
        return self._draft(grown), caches, memory, runs

    def feed_text(self, model: Bound, cache: Cache, context: Context) -> tuple[jax.Array, Cache]:
        """The logits [B, V] behind the text."""
        cache = catch_up(model, cache, context, self.lag)
        return feed_last(model, cache, context, self.lag)

    def _seed(self, model: Bound, cache: Cache, context: Context) -> _Grown:
        """No level yet."""
        shape, rows = self.shape, len(cache.length)
        laws, certain = len(shape.inner) + 1, self._certain(context.options.sampling)
        return _Grown(
            tokens=jnp.zeros((rows, shape.size), jnp.int32),
            ended=jnp.zeros((rows, shape.size), bool),
            drawn=None if certain else jnp.zeros((rows, laws, shape.most), jnp.int32),
            probs=None if certain else jnp.zeros((rows, laws, model.vocab_size), jnp.float32),
            score=jnp.zeros((rows, shape.size), jnp.float32) if self.nodes else None,
            levels=jnp.zeros((rows,), jnp.int32),
            going=context.most > 0,
            cache=cache,
        )

    def _grow(self, growth: _Growth, depth: int, logits: jax.Array, grown: _Grown) -> _Grown:
        """The level of nodes that hang on those of logits [B, m, V], and all below it.

        Each level is a loop of at most one turn within that of the level above.
        """
        shape = self.shape
        grown = self._level(growth, depth, logits, grown)
        if depth + 1 == shape.levels:
            return grown

        def deeper(grown: _Grown) -> _Grown:
            tokens = grown.tokens[:, np.array(shape.fed(depth))]
            how = _places(shape, depth, growth.base)
            output, cache = growth.model.extend(tokens, grown.cache, **how)
            return self._grow(growth, depth + 1, output.logits, grown.replace(cache=cache))

        return masked_step(jnp.any(grown.going), deeper, grown)

    def _level(self, growth: _Growth, depth: int, logits: jax.Array, grown: _Grown) -> _Grown:
        """With the nodes of a level from the logits [B, m, V] of those they hang on."""
        shape, settings = self.shape, growth.context.options.sampling
        nodes = np.array(shape.level(depth))
        parents = np.array(shape.parents)[nodes]
        laws, ranks = np.array(shape.laws)[nodes], np.array(shape.ranks)[nodes]
        first, probs, score = laws[0], grown.probs, grown.score
        if self._certain(settings):
            drawn = largest(logits, ranks.max() + 1)
        else:
            adjusted = adjust(logits, settings)
            numbers = first + jnp.arange(logits.shape[1])
            own_keys = jax.vmap(fold, (None, 0), out_axes=1)(growth.keys, numbers)
            drawn = draw_in_order(own_keys, adjusted, shape.most)
            probs = _put(probs, adjusted, first)
        tokens = drawn[:, laws - first, ranks]
        if self.nodes:
            chance = jnp.take_along_axis(_log_probability(logits, settings), drawn, axis=-1)
            own = chance[:, laws - first, ranks]
            score = _put(score, own + (score[:, parents] if depth else 0.0), nodes[0])
        ended = jnp.isin(tokens, jnp.array(growth.eos))
        ended = _put(grown.ended, ended | (grown.ended[:, parents] if depth else False), nodes[0])
        fed = np.array(shape.fed(depth), int)
        more = (depth + 1 < growth.context.most) & jnp.any(~ended[:, fed], axis=1)
        return grown.replace(
            tokens=_put(grown.tokens, tokens, nodes[0]),
            ended=ended,
            drawn=None if grown.drawn is None else _put(grown.drawn, drawn, first),
            probs=probs,
            score=score,
            levels=grown.levels + grown.going,
            going=grown.going & more,
        )

    def _draft(self, grown: _Grown) -> Draft:
        """The tree, or its likeliest nodes; each row has the levels that it needed itself."""
        shape, tokens = self.shape, grown.tokens
        sizes = jnp.array([0, *(shape.level(depth).stop for depth in range(shape.levels))])
        length, fed = sizes[grown.levels], sizes[jnp.maximum(grown.levels - 1, 0)]
        parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
        was_fed = jnp.arange(shape.size) < fed[:, None]
        draft = Draft.chain(tokens, length, self._distribution(grown)).replace(
            parents=parents, slots=jnp.where(was_fed, jnp.array(shape.slots, jnp.int32), -1)
        )
        return likeliest(draft, grown.score, self.nodes) if self.nodes else draft

    def _certain(self, settings: Sampling) -> bool:
        """Whether the likeliest tokens are the children, not draws.

        To choose among drawn nodes by their probability would make the chosen ones other draws.
        """
        return settings.greedy or self.nodes > 0

    def _distribution(self, grown: _Grown) -> Distribution:
        if grown.probs is None:
            return OneHot(grown.tokens)
        return WithoutReplacement(grown.probs, grown.drawn, self.shape.laws, self.shape.ranks)


@dataclasses.dataclass(frozen=True)
class _Growth:
    """What all levels of a tree have in common."""

    model: Bound
    eos: tuple[int, ...]  # of the target: what ends a text
    base: jax.Array  # [B] slots of the model's cache that the text takes
    context: Context
    keys: jax.Array  # [B]


@struct.dataclass
class _Grown:
    """Carry: the levels so far of a tree of G nodes and D laws; what is not grown holds zeros."""

    tokens: jax.Array  # [B, G] int32
    ended: jax.Array  # [B, G] bool: the text ends with the node or above it
    drawn: jax.Array | None  # [B, D, W] int32: of each law; None: certain tokens
    probs: jax.Array | None  # [B, D, V] float32; None: certain tokens
    score: jax.Array | None  # [B, G] float32: logarithm of the drafter's probability of the path
    levels: jax.Array  # [B] int32: those that the row needed, the drafter's calls
    going: jax.Array  # [B] bool: it needs the next one
    cache: Cache


def _put(rows: jax.Array, values: jax.Array, first: int) -> jax.Array:
    """rows [B, N, ...] with values [B, n, ...] from column `first` on."""
    return jax.lax.dynamic_update_slice_in_dim(rows, values, int(first), axis=1)


def _places(shape: Shape, depth: int, base: jax.Array) -> dict[str, jax.Array]:
    """Where the fed nodes of a level and those before them are, and which of them they see.

    Nothing where these are a chain, as far as a model goes by default.
    """
    before = [node for node in shape.inner if shape.depths[node] <= depth]
    if len(before) == depth + 1:
        return {}
    position = base[:, None] + jnp.array([shape.depths[node] for node in before])
    seen = shape.seen[np.ix_(shape.fed(depth), before)]
    visible = jnp.broadcast_to(seen, (len(base), *seen.shape))
    return {"position": position, "visible": visible}


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
    parents = draft.parents[rows, kept]
    parents = jnp.where(parents < 0, -1, place[rows, parents])
    kept_draft = Draft.chain(draft.tokens[rows, kept], jnp.minimum(draft.length, count))
    return kept_draft.replace(parents=parents, slots=draft.slots[rows, kept])
