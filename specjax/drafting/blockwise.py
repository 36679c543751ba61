"""Blockwise parallel drafting: one state gives the distributions of all drafted tokens.

Stern et al. (2018), as a drafter of speculative sampling (docs/methods/blockwise.md). Tokens are
drawn independently given the prefix, which the lossless rules allow: they test each token against
the distribution it was drawn from.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches, until_eos
from specjax.core.spec import Spec
from specjax.drafting.parallel_heads import ParallelHeads, drawn_apart


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndependentHeads(ParallelHeads):
    """Heads that read a state and nothing else."""

    model: str = fields.name(
        "drafter", help="the heads' trunk; target: its own states, without a call"
    )

    def logits(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, Caches, Log]:
        """The heads' logits [B, used, V] behind the text."""
        hidden, caches = self.state(env, caches, memory, context)
        loaded = env.params[self.heads]
        used = dataclasses.replace(loaded.heads, count=self.used)
        logits = used.logits(loaded.params, hidden, env[self.model])
        log = calls_of({self.calls[0].part: context.active.astype(jnp.int32)})
        return logits, caches, log


@DRAFTERS.register("blockwise", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Blockwise(IndependentHeads):
    """Tokens of parallel heads, all from one state of their trunk or of the target."""

    length: int = fields.draft_length(help="drafted tokens, at most as many as there are heads")

    @property
    def used(self) -> int:
        return self.length

    @property
    def asking(self) -> str:
        return f"length is {self.length}"

    @property
    def spec(self) -> Spec:
        return Spec(width=self.length, reach=self.length, **self._common())

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        logits, caches, log = self.logits(env, caches, memory, context)
        tokens, law = drawn_apart(logits, context, keys)
        length = until_eos(tokens, env[self.model].eos)
        return Draft.chain(tokens, length, law), caches, memory, log
