"""Drafts all tokens of a chain or tree in one causal call on the target's states.

P-EAGLE (arXiv 2602.01469, docs/methods/p_eagle.md): tokens are independent given the text.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts.catching_up import catch_up
from specjax.contracts.context import Context
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches, slice_window
from specjax.contracts.spec import Call, Spec
from specjax.drafting.eagle import Eagle
from specjax.drafting.on_target import TargetStates
from specjax.models.base import Cache
from specjax.models.p_eagle import MASK
from specjax.models.p_eagle import PEagle as Model


@DRAFTERS.register("p_eagle", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class PEagle(Eagle):
    """Tokens of layers that read the target's states and then masks, all from one call."""

    drives = Model
    parallel = True
    lacks = ()

    def call(self, tokens: int, logits: int) -> Call:
        return Call(self.model, tokens + self.depth - 1, logits)

    @property
    def spec(self) -> Spec:
        """Of rows that feed one token, masks and what follows them reach the furthest."""
        made = super().spec
        return dataclasses.replace(made, reach=max(made.reach, self.lag + self.depth - 2))

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        """Feeds the last tokens of the text, each exactly once, and masks after the last one."""
        model, cache = env[self.model], self.absorb_states(env, caches, memory)
        cache = catch_up(model, cache, context, self.lag)
        tokens = slice_window(context.tokens, cache.length, self.lag + self.depth - 1)
        last = (context.length - 1 - cache.length)[:, None]
        tokens = jnp.where(jnp.arange(tokens.shape[1]) > last, MASK, tokens)
        output, cache = model.extend(tokens, cache, at=last + jnp.arange(self.depth))
        return output.logits, cache
