"""Drafts with one decoder layer that continues from the target's states.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025); trees of the most probable nodes are EAGLE-2's (docs/methods/eagle.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts.catching_up import catch_up
from specjax.contracts.context import Context
from specjax.contracts.drafter import Log
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches, slice_window
from specjax.drafting.chain import Progress
from specjax.drafting.nodes import Nodes
from specjax.drafting.on_target import OnTarget, TargetStates
from specjax.models.base import Cache
from specjax.models.eagle import Eagle as Model


@DRAFTERS.register("eagle", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class Eagle(OnTarget):
    """Tokens of one decoder layer that reads the target's states, then its own."""

    drives = Model

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        """Feeds the last tokens of the text, each exactly once."""
        model, cache = env[self.model], self.absorb_states(env, caches, memory)
        cache = catch_up(model, cache, context, self.lag)
        tokens = slice_window(context.tokens, cache.length, self.lag)
        last = context.length - 1 - cache.length
        output, cache = model.extend(tokens, cache, at=last[:, None])
        return output.logits[:, 0], cache.replace(length=context.length)

    def feed(self, env: Env, state: Cache, nodes: Nodes) -> tuple[jax.Array, Cache]:
        output, cache = env[self.model].extend(nodes.tokens, state, **nodes.placement)
        return output.logits, cache

    def close(
        self, env: Env, caches: Caches, state: Cache, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """Discards drafted entries; accepted tokens are fed again with the target's states."""
        length = jnp.minimum(state.length, context.length)
        return {**caches, self.model: state.replace(length=length)}, {}, {}
