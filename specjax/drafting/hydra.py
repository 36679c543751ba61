"""Drafts with heads on the target that read the previous tokens of their path.

Ankner et al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding" (2024)
(docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.drafting.draft_heads import TARGET, DraftHeads
from specjax.drafting.nodes import Nodes

HydraState = tuple[jax.Array, jax.Array]
"""The target's state [B, D] before the pending token, and that token [B]."""


@DRAFTERS.register("hydra", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Hydra(DraftHeads):
    """Tokens of heads on the target's own state, each of which reads the tokens before its own."""

    sequential = True
    needs_static_depth = True

    @property
    def trunk(self) -> str:
        return TARGET

    def open(
        self, env: Env, caches: Caches, memory: jax.Array, context: Context
    ) -> tuple[jax.Array, HydraState]:
        pending = get_pending_tokens(context)
        return self._logits(env, memory, pending[:, None]), (memory, pending)

    def feed(self, env: Env, state: HydraState, nodes: Nodes) -> tuple[jax.Array, HydraState]:
        hidden, pending = state
        each = nodes.tokens.shape
        hidden = jnp.broadcast_to(hidden[:, None], (*each, hidden.shape[-1]))
        first = jnp.broadcast_to(pending[:, None, None], (*each, 1))
        text = jnp.concatenate([first, nodes.path], axis=-1)
        return self._logits(env, hidden, text), state

    def _logits(self, env: Env, hidden: jax.Array, tokens: jax.Array) -> jax.Array:
        """Logits [..., V] after tokens [..., j], from the state [..., D] before the first."""
        loaded, target = env.params[self.heads], env.target
        state = loaded.heads.compute_state(
            loaded.params, hidden, tokens.shape[-1], target.embed(tokens)
        )
        return target.read_out(state)
