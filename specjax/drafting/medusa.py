"""Parallel draft heads: one state gives the distributions of all drafted tokens.

Stern et al., "Blockwise Parallel Decoding for Deep Autoregressive Models" (2018) for chains, Cai et
al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads" (2024),
section 2.1.2, for trees (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses

import jax

from specjax.contracts import fields
from specjax.contracts.catching_up import catch_up, feed_last_for_state
from specjax.contracts.context import Context
from specjax.contracts.drafter import Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.drafting.chain import Progress
from specjax.drafting.draft_heads import DraftHeads


@DRAFTERS.register("medusa", example={"widths": (2, 1)})
@dataclasses.dataclass(frozen=True)
class Medusa(DraftHeads):
    """Tokens of parallel heads, all from one state of their trunk or of the target."""

    model: str = fields.name(
        "drafter", help="the heads' trunk; target: its own states, without a call"
    )

    parallel = True
    lacks = ()

    @property
    def trunk(self) -> str:
        return self.model

    def open(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, Caches]:
        hidden, after = memory, {}
        if not self.on_target:
            trunk = env[self.model]
            cache = catch_up(trunk, caches[self.model], context, self.lag)
            hidden, cache = feed_last_for_state(trunk, cache, context, self.lag)
            after = {self.model: cache}
        loaded = env.params[self.heads]
        used = dataclasses.replace(loaded.heads, count=self.depth)
        return used.compute_logits(loaded.params, hidden, env[self.model]), after

    def close(
        self, env: Env, caches: Caches, state: Caches, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        return {**caches, **state}, {}, {}
