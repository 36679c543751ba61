"""The random drafter: every token equally likely.

Some token has p >= 1/V, so even this improves any target slightly (docs/methods/drafters.md,
"Random tokens").
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.drafting.base import LENGTH, Caches, Context, Draft, Modelless, Models, fold


@dataclasses.dataclass(frozen=True)
class Uniform(Modelless):
    """Proposes `length` tokens drawn uniformly from `vocab_size` ids."""

    length: int
    vocab_size: int
    writers: ClassVar[tuple[str, ...]] = ("uniform",)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        shape = (keys.shape[0], self.length)
        one = jax.vmap(lambda key: jax.random.randint(key, shape[1:], 0, self.vocab_size))
        law = jnp.full((*shape, self.vocab_size), 1.0 / self.vocab_size, jnp.float32)
        draft = Draft(
            tokens=one(fold(keys, 0)).astype(jnp.int32),
            length=jnp.full(shape[:1], self.length, jnp.int32),
            probs=None if context.options.sampling.greedy else law,
            source=jnp.zeros(shape, jnp.int32),
            calls={},
            stop_reason=jnp.full(shape[:1], LENGTH, jnp.int32),
        )
        return draft, caches
