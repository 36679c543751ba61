"""A tree that a model drafts, level by level: one call for the nodes of a level.

Cai et al. (2024) and Chen et al., "Sequoia" (2024) for trees of a fixed shape; Li et al.,
"EAGLE-2" (2024) for those of the likeliest nodes (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, feed_last
from specjax.core.context import Context, fold
from specjax.core.distribution import Distribution, OneHot, WithoutReplacement
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Bound, Env
from specjax.core.proposing import draw_in_order
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
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
    def spec(self) -> Spec:
        shape = self.shape
        width = self.nodes or shape.size
        fed = (len(shape.fed(depth)) for depth in range(shape.levels - 1))
        return self._tree_spec(
            width=width,
            reach=max(width, len(shape.inner)),
            calls=(Call(self.model, LAG, 1), *(Call(self.model, count, count) for count in fed)),
            models=(self.model,),
            writers=(self.model,),
            parents=() if self.nodes else shape.parents,
            fed=(self.model,),
        )

    def check(self, env: Env) -> None:
        """Refuses more children than there are tokens.

        Raises:
          ValueError: saying how many.
        """
        self.check_children(env[self.model].vocab_size)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        model = env[self.model]
        cache = catch_up(model, caches[self.model], context, LAG)
        logits, cache = feed_last(model, cache, context, LAG)
        levels, cache = self._grow(model, cache, logits, context.options.sampling, keys)
        tokens = jnp.concatenate([level.tokens for level in levels], axis=1)
        draft = Draft.chain(tokens, distribution=self._distribution(tokens, levels))
        parents, slots = (
            jnp.broadcast_to(jnp.array(of_nodes, jnp.int32), tokens.shape)
            for of_nodes in (self.shape.parents, self.shape.slots)
        )
        draft = draft.replace(parents=parents, slots=slots)
        if self.nodes:
            score = jnp.concatenate([level.score for level in levels], axis=1)
            draft = likeliest(draft, score, self.nodes)
        runs = {self.model: len(self.spec.calls) * context.active.astype(jnp.int32)}
        return draft, {**caches, self.model: cache}, memory, calls_of(runs)

    def _grow(
        self, model: Bound, cache: Cache, logits: jax.Array, settings: Sampling, keys: jax.Array
    ) -> tuple[list[_Level], Cache]:
        """The levels of the tree behind the text, whose next-token logits [B, V] are given.

        The cache's pointer stays behind the text.
        """
        shape, base = self.shape, cache.length
        levels: list[_Level] = []
        logits = logits[:, None]
        for depth in range(shape.levels):
            above = levels[-1] if levels else None
            levels.append(self._level(depth, logits, above, settings, keys))
            if fed := shape.fed(depth):
                tokens = levels[-1].tokens[:, np.array(fed) - shape.level(depth)[0]]
                output, cache = model.extend(tokens, cache, **_places(shape, depth, base))
                logits = output.logits
        return levels, cache.replace(length=base)

    def _level(
        self,
        depth: int,
        logits: jax.Array,
        above: _Level | None,
        settings: Sampling,
        keys: jax.Array,
    ) -> _Level:
        """The nodes of a level from the logits [B, m, V] of those they hang on."""
        shape = self.shape
        nodes = np.array(shape.level(depth))
        laws, ranks = np.array(shape.laws)[nodes], np.array(shape.ranks)[nodes]
        first = laws[0]
        if self._certain(settings):
            probs, drawn = None, largest(logits, ranks.max() + 1)
        else:
            probs = adjust(logits, settings)
            numbers = first + jnp.arange(logits.shape[1])
            own_keys = jax.vmap(fold, (None, 0), out_axes=1)(keys, numbers)
            drawn = draw_in_order(own_keys, probs, shape.most)
        tokens = drawn[:, laws - first, ranks]
        score = None
        if self.nodes:
            chance = jnp.take_along_axis(_log_probability(logits, settings), drawn, axis=-1)
            score = chance[:, laws - first, ranks]
            if above is not None:
                parents = np.array(shape.parents)[nodes] - shape.level(depth - 1)[0]
                score += above.score[:, parents]
        return _Level(tokens, drawn, probs, score)

    def _certain(self, settings: Sampling) -> bool:
        """Whether the likeliest tokens are the children, not draws.

        To choose among drawn nodes by their probability would make the chosen ones other draws.
        """
        return settings.greedy or self.nodes > 0

    def _distribution(self, tokens: jax.Array, levels: list[_Level]) -> Distribution:
        if levels[0].probs is None:
            return OneHot(tokens)
        probs, drawn = (
            jnp.concatenate([getattr(level, name) for level in levels], axis=1)
            for name in ("probs", "drawn")
        )
        return WithoutReplacement(probs, drawn, self.shape.laws, self.shape.ranks)


@dataclasses.dataclass(frozen=True)
class _Level:
    """n nodes of a level and what they were drawn from: the laws of m nodes of the level above."""

    tokens: jax.Array  # [B, n] int32
    drawn: jax.Array  # [B, m, W] int32
    probs: jax.Array | None  # [B, m, V] float32; None: certain tokens
    score: jax.Array | None  # [B, n] float32: logarithm of the drafter's probability of the path


def _places(shape: Shape, depth: int, base: jax.Array) -> dict[str, jax.Array]:
    """Where the fed nodes of a level and those before them are, and which of them they see."""
    before = [node for node in shape.inner if shape.depths[node] <= depth]
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

    No node scores more than its parent, and of equals the first count: parents are kept.
    """
    kept = jnp.sort(jax.lax.top_k(score, count)[1], axis=1)
    rows = jnp.arange(len(kept))[:, None]
    place = jnp.zeros_like(draft.tokens).at[rows, kept].set(jnp.arange(count))
    parents = draft.parents[rows, kept]
    parents = jnp.where(parents < 0, -1, place[rows, parents])
    tokens = draft.tokens[rows, kept]
    return Draft.chain(tokens).replace(parents=parents, slots=draft.slots[rows, kept])
