"""Drafts with the target's own first decoder layers, on its weights and cache.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.5.2, under any rule
(docs/methods/early_exit.md). The target continues from their states (`verification.whole`).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.drafter import Log, Memory
from specjax.contracts.env import Env, get_states
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Call
from specjax.drafting.chain import Progress
from specjax.drafting.nodes import Nodes
from specjax.drafting.proposer import PARALLEL_FIELDS, TREE_FIELDS, Proposer
from specjax.models.base import Cache
from specjax.verification.whole import STATES, ResumedReader


class ExitState(struct.PyTreeNode):
    """The target's cache, and the states of its first layers."""

    cache: Cache
    states: jax.Array  # [B, K + 1, D] of the tokens fed


@DRAFTERS.register("early_exit", example={"exit": 1, "length": 2})
@dataclasses.dataclass(frozen=True)
class EarlyExit(Proposer):
    """Tokens of the target's own first `exit` decoder layers."""

    model: str = "target"  # other targets are refused elsewhere
    _: dataclasses.KW_ONLY
    exit: int = fields.integer(help="decoder layers that draft")

    lacks: ClassVar[tuple[str, ...]] = (*TREE_FIELDS, *PARALLEL_FIELDS)
    can_pause = False  # the target continues from its states

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def lag(self) -> int:
        """The target's own cache lacks only the pending token."""
        return 1

    def call(self, tokens: int, logits: int) -> Call:
        return Call(self.model, tokens, logits, self.exit)

    @property
    def last_calls(self) -> tuple[Call, ...]:
        return (self.call(1, 0),)

    @property
    def chain_reader(self) -> Reader:
        return ResumedReader(self.exit)

    def open(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, ExitState]:
        fed = get_pending_tokens(context)[:, None]
        output, cache = env[self.model].extend(fed, caches[self.model], exit=self.exit)
        states = jnp.pad(get_states(output), ((0, 0), (0, self.depth), (0, 0)))
        return output.logits[:, 0], ExitState(cache, states)

    def feed(self, env: Env, state: ExitState, nodes: Nodes) -> tuple[jax.Array, ExitState]:
        output, cache = env[self.model].extend(nodes.tokens, state.cache, exit=self.exit)
        states = jax.lax.dynamic_update_slice_in_dim(
            state.states, get_states(output), nodes.depth, axis=1
        )
        return output.logits, ExitState(cache, states)

    def close(
        self,
        env: Env,
        caches: Caches,
        state: ExitState,
        context: Context,
        drafted: Progress | None,
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """Feeds the last token too, because the target continues from its state.

        All layers share one pointer, so it is reset afterwards.
        """
        assert drafted is not None  # it `lacks` trees

        def lacks_states(p: Progress) -> jax.Array:
            return jnp.any(p.length == p.step)

        def feed(p: Progress) -> Progress:
            fed = jax.lax.dynamic_slice_in_dim(p.tokens, p.step - 1, 1, axis=1)
            _, state = self.feed(env, p.state, Nodes(fed, p.step, p.tokens))
            return p.replace(state=state, step=p.step + 1)

        # A single row would feed it the same way, unless a predicate ended the draft after it.
        runs = {self.last_calls[0].part: drafted.length + 1 - drafted.calls}
        state = jax.lax.while_loop(lacks_states, feed, drafted).state
        cache = state.cache.replace(length=caches[self.model].length)
        return {**caches, self.model: cache}, {STATES: state.states}, runs
