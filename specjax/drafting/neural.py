"""Drafts with a language model.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), Algorithm 1;
trees: Chen et al., "Sequoia" (2024) and Li et al., "EAGLE-2" (2024) (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.catching_up import catch_up, feed_last
from specjax.contracts.context import Context
from specjax.contracts.drafter import Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.drafting.chain import Progress
from specjax.drafting.nodes import Nodes
from specjax.drafting.on_target import refuse_feature_drafter
from specjax.drafting.proposer import Proposer
from specjax.models.base import Cache


@DRAFTERS.register("neural", example={"length": 4})
@dataclasses.dataclass(frozen=True)
class Neural(Proposer):
    """A small model's tokens."""

    model: str = fields.name("drafter", help="the model that drafts")

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def check(self, env: Env) -> None:
        """Refuses a model that needs the target's states, and more children than there are tokens.

        Raises:
          ValueError: saying what does not fit.
        """
        refuse_feature_drafter(env, self.model)
        super().check(env)

    def open(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, Cache]:
        model = env[self.model]
        cache = catch_up(model, caches[self.model], context, self.lag)
        return feed_last(model, cache, context, self.lag)

    def feed(self, env: Env, state: Cache, nodes: Nodes) -> tuple[jax.Array, Cache]:
        output, cache = env[self.model].extend(nodes.tokens, state, **nodes.placement)
        return output.logits, cache

    def close(
        self, env: Env, caches: Caches, state: Cache, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        if drafted is None:  # the cache has the nodes of a tree after its pointer
            state = state.replace(length=jnp.minimum(state.length, context.length))
        return {**caches, self.model: state}, {}, {}
