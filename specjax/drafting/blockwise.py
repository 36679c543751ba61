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


@DRAFTERS.register("blockwise", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Blockwise(Drafter):
    """Tokens of parallel heads, all from one call of their trunk.

    `heads` names the `LoadedHeads` in `params`.
    """

    length: int = fields.draft_length(help="drafted tokens, at most as many as there are heads")
    model: str = fields.name("drafter", help="the heads' trunk")
    heads: str = "heads"

    @property
    def spec(self) -> Spec:
        return Spec(
            width=self.length,
            reach=self.length,
            calls=(Call(self.model, self._lag, self.length),),
            models=(self.model,),
            resources=(self.heads,),
            writers=(self.model,),
        )

    @property
    def _lag(self) -> int:
        """Tokens fed: after a fully accepted draft the trunk has seen neither it nor the bonus."""
        return self.length + 1

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit.

        Raises:
          ValueError: when there are fewer heads than `length`, or they were made for another
            width.
        """
        loaded = env.params[self.heads]
        if not isinstance(loaded, LoadedHeads):
            raise ValueError(f"{self.heads!r} is a {type(loaded).__name__}; it must be LoadedHeads")
        heads = loaded.heads
        if self.length > heads.count:
            raise ValueError(
                f"length is {self.length}; {self.heads!r} holds {heads.count} heads, so it must be"
                f" at most {heads.count}"
            )
        width = env[self.model].model.config.d_model
        if heads.d_model != width:
            raise ValueError(
                f"{self.heads!r} was made for a model of width {heads.d_model}; {self.model!r} has"
                f" {width}"
            )

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        trunk, loaded = env[self.model], env.params[self.heads]
        cache = catch_up(trunk, caches[self.model], context, self._lag)
        hidden, cache = last_hidden(trunk, cache, context, self._lag)
        used = dataclasses.replace(loaded.heads, count=self.length)
        logits = trunk.read_out(used.states(loaded.params, hidden))
        head_keys = jax.vmap(fold, in_axes=(None, 0), out_axes=1)(keys, jnp.arange(self.length))
        per_head = jax.vmap(propose, in_axes=(1, None, 1), out_axes=1)
        tokens, probs = per_head(logits, context.options.sampling, head_keys)
        length = until_eos(tokens, trunk.eos)
        draft = Draft.chain(tokens, length, drawn_from(tokens, probs))
        log = calls_of({self.model: context.active.astype(jnp.int32)})
        return draft, {**caches, self.model: cache}, memory, log
