"""A tree that a model drafts, level by level: one call for the nodes of a level.

Chen et al., "Sequoia" (2024); Li et al., "EAGLE-2" (2024) (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, feed_last
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Bound, Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.growing import Growing
from specjax.drafting.on_target import refuse_feature_drafter
from specjax.drafting.shape import Shape
from specjax.models.base import Cache

LAG = 2
"""Tokens fed first: where a leaf stood the model has seen neither it nor the token behind it."""


@DRAFTERS.register("neural_tree", example={"widths": (2, 2)})
@dataclasses.dataclass(frozen=True)
class NeuralTree(Growing):
    """A tree of a small model's tokens, of a fixed shape or of its likeliest nodes."""

    model: str = fields.name("drafter", help="the model that drafts")

    @property
    def lag(self) -> int:
        """Tokens fed first."""
        return LAG

    @property
    def spec(self) -> Spec:
        _, *fed = self.fed
        first = Call(self.model, self.lag, 1)
        return self._grown_spec(
            reach=max(self.nodes or self.shape.size, len(self.shape.inner)),
            calls=(first, *(Call(self.model, count, count) for count in fed)),
            models=(self.model,),
            writers=(self.model,),
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
        model, shape = env[self.model], self.shape
        logits, cache = self.feed_text(model, caches[self.model], context)
        base = cache.length

        def feed(depth: int, tokens: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
            nodes = tokens[:, np.array(shape.fed(depth))]
            output, cache = model.extend(nodes, cache, **_places(shape, depth, base))
            return output.logits, cache

        grown = self.grow(feed, logits, cache, context, env.target.eos, keys)
        caches = {**caches, self.model: grown.carry.replace(length=base)}
        return self.draft(grown), caches, memory, calls_of({self.model: grown.levels})

    def feed_text(self, model: Bound, cache: Cache, context: Context) -> tuple[jax.Array, Cache]:
        """The logits [B, V] behind the text."""
        cache = catch_up(model, cache, context, self.lag)
        return feed_last(model, cache, context, self.lag)


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
