"""A block of tokens that reads the target's states, all from one call.

Chen et al., "DFlash: Block Diffusion for Flash Speculative Decoding" (2026)
(docs/methods/dflash.md).
Tokens are drawn independently given the prefix, each from the law that is handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.context import Context, last_token
from specjax.core.draft import LENGTH, STOPPED, Draft
from specjax.core.drafter import STOP, Log, Outcome, calls_of
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches, until_eos
from specjax.core.spec import Spec
from specjax.drafting.on_target import OnTarget, OnTargetMemory
from specjax.drafting.online import check_online, divergence_field, nothing_learned, rate_field
from specjax.drafting.parallel_heads import drawn_apart
from specjax.models.base import PromptReading
from specjax.models.dflash import DFlash as Model
from specjax.models.shared_vocabulary import unwrapped
from specjax.sampling import confidence


@DRAFTERS.register("dflash", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class DFlash(OnTarget):
    """Tokens of masks that read the target's states, all from one call."""

    drives = Model

    length: int = fields.draft_length(help="drafted tokens, fewer than a block of its training has")
    model: str = fields.name("drafter", help="the feature drafter, trained for this target")
    confidence: str | None = fields.number(
        None,
        bounds="[0, 1]",
        traced="confidence",
        help="largest plain probability below which nothing more is drafted",
    )
    online_rate: str | None = rate_field()
    online_divergence: str = divergence_field()
    layers: tuple[int, ...] = ()

    @classmethod
    def check_values(cls, values: Mapping[str, Any]) -> None:
        check_online(values)

    @property
    def lag(self) -> int:
        return self.length + 1

    @property
    def spec(self) -> Spec:
        return Spec(
            width=self.length,
            reach=self.length,
            calls=(Call(self.model, self.length + 1, self.length),),
            models=(self.model,),
            writers=(self.model,),
            always=self.confidence is None,
            features=self.layers,
        )

    def check(self, env: Env) -> None:
        """Refuses another target's drafter, and drafts longer than the blocks of its training.

        Raises:
          ValueError: saying what does not fit.
        """
        super().check(env)
        most = unwrapped(env[self.model].model).config.block_size - 1
        if self.length > most:
            raise ValueError(
                f"length is {self.length}; {self.model!r} was trained on blocks of {most + 1}"
                f" tokens, the pending one among them, so it must be at most {most}"
            )

    def begin(
        self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> OnTargetMemory:
        memory = super().begin(env, context, prompt, keys)
        if self.online_rate is None:
            return memory
        rows, vocabulary = context.length.shape[0], env[self.model].vocab_size
        return memory.replace(own=nothing_learned(rows, self.length, vocabulary))

    def observe(self, memory: OnTargetMemory, outcome: Outcome) -> OnTargetMemory:
        memory = super().observe(memory, outcome)
        if self.online_rate is None:
            return memory
        return memory.replace(own=memory.own.after(outcome, self.online_divergence))

    def propose(
        self,
        env: Env,
        caches: Caches,
        memory: OnTargetMemory,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches, OnTargetMemory, Log]:
        caches, options = self.with_target(env, caches, memory), context.options
        model, pending = env[self.model], context.length - 1
        rows, size = len(pending), self.length + 1
        block = jnp.broadcast_to(last_token(context)[:, None], (rows, size))
        at = jnp.broadcast_to(jnp.arange(1, size), (rows, self.length))
        output, cache = model.extend(block, caches[self.model].replace(length=pending), at=at)
        logits = output.logits
        if self.online_rate is not None:
            logits = logits + memory.own.bias[:, None]
            memory = memory.replace(own=memory.own.replace(drafted=jax.nn.softmax(logits)))
        tokens, law = drawn_apart(logits, context, keys)
        length = until_eos(tokens, model.eos)
        stopped = jnp.zeros_like(context.active)
        if self.confidence is not None:
            # Of laws that no drafted token changes: the stop is known before any is drawn.
            sure = confidence(logits) >= options.numbers[self.confidence]
            run = jnp.sum(jnp.cumprod(sure, axis=1), axis=1, dtype=jnp.int32)
            stopped, length = run < length, jnp.minimum(run, length)
        log = {STOP: jnp.where(stopped, STOPPED, LENGTH)}
        log |= calls_of({self.model: context.active.astype(jnp.int32)})
        # What the block left in the cache is not of the text.
        caches = {**caches, self.model: cache.replace(length=pending)}
        return Draft.chain(tokens, length, law), caches, memory, log
