"""Blockwise parallel drafting: one model call gives the distributions of all drafted tokens.

Stern et al. (2018), as a drafter of speculative sampling (docs/methods/blockwise.md). Tokens are
drawn independently given the prefix, which the lossless rules allow: they test each token against
the distribution it was drawn from.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, last_hidden
from specjax.core.context import Context, fold
from specjax.core.draft import Draft
from specjax.core.drafter import Drafter, Log, Memory, calls_of
from specjax.core.env import Env
from specjax.core.proposing import drawn_from, propose
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches, until_eos
from specjax.core.spec import Spec
from specjax.models.heads import LoadedHeads


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelHeads(Drafter):
    """What heads on a trunk share. `heads` names the `LoadedHeads` in `params`."""

    model: str = fields.name("drafter", help="the heads' trunk")
    heads: str = "heads"

    @property
    def used(self) -> int:
        """Heads asked for in a round: how far it looks ahead."""
        raise NotImplementedError

    @property
    def asking(self) -> str:
        """What says how many, for a refusal."""
        raise NotImplementedError

    @property
    def lag(self) -> int:
        """Tokens fed: after a fully accepted draft the trunk has seen neither it nor the bonus."""
        return self.used + 1

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit.

        Raises:
          ValueError: when there are too few, or they were made for another width.
        """
        loaded = env.params[self.heads]
        if not isinstance(loaded, LoadedHeads):
            raise ValueError(f"{self.heads!r} is a {type(loaded).__name__}; it must be LoadedHeads")
        heads = loaded.heads
        if self.used > heads.count:
            raise ValueError(
                f"{self.asking}; {self.heads!r} holds {heads.count} heads, so it must be"
                f" at most {heads.count}"
            )
        width = env[self.model].model.config.d_model
        if heads.d_model != width:
            raise ValueError(
                f"{self.heads!r} was made for a model of width {heads.d_model}; {self.model!r} has"
                f" {width}"
            )

    def logits(self, env: Env, caches: Caches, context: Context) -> tuple[jax.Array, Caches, Log]:
        """The heads' logits [B, used, V] behind the text."""
        trunk, loaded = env[self.model], env.params[self.heads]
        cache = catch_up(trunk, caches[self.model], context, self.lag)
        hidden, cache = last_hidden(trunk, cache, context, self.lag)
        used = dataclasses.replace(loaded.heads, count=self.used)
        logits = trunk.read_out(used.states(loaded.params, hidden))
        log = calls_of({self.model: context.active.astype(jnp.int32)})
        return logits, {**caches, self.model: cache}, log


def head_keys(keys: jax.Array, count: int) -> jax.Array:
    """Keys [B, count] of the heads from keys [B]."""
    return jax.vmap(fold, in_axes=(None, 0), out_axes=1)(keys, jnp.arange(count))


@DRAFTERS.register("blockwise", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Blockwise(ParallelHeads):
    """Tokens of parallel heads, all from one call of their trunk."""

    length: int = fields.draft_length(help="drafted tokens, at most as many as there are heads")

    @property
    def used(self) -> int:
        return self.length

    @property
    def asking(self) -> str:
        return f"length is {self.length}"

    @property
    def spec(self) -> Spec:
        return Spec(
            width=self.length,
            reach=self.length,
            calls=(Call(self.model, self.lag, self.length),),
            models=(self.model,),
            resources=(self.heads,),
            writers=(self.model,),
        )

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        logits, caches, log = self.logits(env, caches, context)
        per_head = jax.vmap(propose, in_axes=(1, None, 1), out_axes=1)
        tokens, probs = per_head(logits, context.options.sampling, head_keys(keys, self.length))
        length = until_eos(tokens, env[self.model].eos)
        return Draft.chain(tokens, length, drawn_from(tokens, probs)), caches, memory, log
