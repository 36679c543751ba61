"""Drafts with layers that read the keys and values of the target's own layers.

Gemma 4 assistants (Google 2026, docs/methods/eagle.md): nothing is prefilled or caught up with.
"""

from __future__ import annotations

import dataclasses

import jax

from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.drafter import Log
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Call
from specjax.drafting.chain import Progress
from specjax.drafting.eagle import Eagle
from specjax.drafting.on_target import TargetStates
from specjax.models.assistant import Assistant as Model
from specjax.models.base import Cache


@DRAFTERS.register("assistant", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class Assistant(Eagle):
    """Tokens of layers that read the target's keys and values, and its last state."""

    drives = Model

    def call(self, tokens: int, logits: int) -> Call:
        return Call(self.model, logits, logits)  # of the text, the pending token alone

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        own = self._feature_drafter(env)
        assert isinstance(own, Model)
        cache = self.absorb_states(env, caches, memory)
        cache = own.borrow(cache, caches[env.target_name], context.length)
        output, cache = env[self.model].extend(get_pending_tokens(context)[:, None], cache)
        return output.logits[:, 0], cache

    def close(
        self, env: Env, caches: Caches, state: Cache, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """Gives the target's caches back, of which the drafter's holds no copy."""
        before = caches[self.model]
        data = {**state.data, **{name: before.data[name] for name in ("memory", "pending")}}
        length = context.length - 1
        return {**caches, self.model: Cache(data, length)}, {}, {}
