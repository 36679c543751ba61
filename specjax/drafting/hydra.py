"""A chain of tokens of heads on the target, each of which reads the tokens before its own.

Ankner et al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding" (2024)
(docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import adjusting
from specjax.core.calls import Call
from specjax.core.context import Context, last_token
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Env
from specjax.core.proposing import drawn_from, propose
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches, until_eos
from specjax.core.spec import Spec
from specjax.drafting.parallel_heads import TARGET, ParallelHeads, head_keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialHeads(ParallelHeads):
    """Heads on the target that read the tokens before theirs: one read-out after another."""

    model = TARGET
    sequential: ClassVar[bool] = True

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(Call(self.model, states, states, read_out=True) for states in self.runs)

    def law(self, env: Env, hidden: jax.Array, tokens: jax.Array) -> jax.Array:
        """Logits [..., V] behind tokens [..., j] from the state [..., D] before the first of them.

        That is the pending one.
        """
        loaded, target = env.params[self.heads], env.target
        state = loaded.heads.state(loaded.params, hidden, tokens.shape[-1], target.embed(tokens))
        return target.read_out(state)


@DRAFTERS.register("hydra", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Hydra(SequentialHeads):
    """Tokens of heads on the target's own state, each of which reads the tokens before its own."""

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
        own_keys = head_keys(keys, self.length)
        text, probs = last_token(context)[:, None], []
        settings = adjusting(context, env.target.vocab_size)
        for head in range(self.length):
            logits = settings.behind(self.law(env, memory, text), text[:, 1:], head)
            token, law = propose(logits, context.options.sampling, own_keys[:, head])
            text, probs = jnp.concatenate([text, token[:, None]], axis=1), [*probs, law]
        tokens = text[:, 1:]
        laws: Any = None if context.options.sampling.greedy else jnp.stack(probs, axis=1)
        length = until_eos(tokens, env.target.eos)
        runs = calls_of({self.calls[0].part: context.active * self.length})
        return Draft.chain(tokens, length, drawn_from(tokens, laws)), caches, memory, runs
