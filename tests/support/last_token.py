"""A newcomer's drafter, whole: the last token, K times."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from specjax.contracts import Draft, Drafter, Spec, fields, get_pending_tokens
from specjax.contracts.registry import DRAFTERS


@DRAFTERS.register("last_token", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class LastToken(Drafter):
    """The last token again and again."""

    length: int = fields.integer(help="drafted tokens")

    @property
    def spec(self) -> Spec:
        return Spec(width=self.length, writers=("last_token",))

    def propose(self, env, caches, memory, context, keys):
        tokens = jnp.tile(get_pending_tokens(context)[:, None], (1, self.length))
        return Draft.chain(tokens), caches, memory, {}
