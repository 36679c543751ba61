"""The random drafter: every token is equally probable.

Some token has p >= 1/V, so even this improves any target slightly (docs/methods/drafters.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context, fold_keys
from specjax.contracts.distribution import Categorical, OneHot
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Drafter, Log, Memory
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec


@DRAFTERS.register("uniform", example={"length": 2})
@dataclasses.dataclass(frozen=True)
class Uniform(Drafter):
    """Random tokens, drawn uniformly from the vocabulary."""

    length: int = fields.draft_length(help="drafted tokens")

    @property
    def spec(self) -> Spec:
        return Spec(width=self.length, writers=("uniform",))

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        vocabulary, shape = env.target.info.vocab_size, (keys.shape[0], self.length)
        one = jax.vmap(lambda key: jax.random.randint(key, shape[1:], 0, vocabulary))
        tokens = one(fold_keys(keys, 0)).astype(jnp.int32)
        if context.options.sampling.greedy:
            distribution = OneHot(tokens)
        else:
            distribution = Categorical(
                jnp.full((*shape, vocabulary), 1.0 / vocabulary, jnp.float32)
            )
        return Draft.chain(tokens, distribution=distribution), caches, memory, {}
