"""A block of tokens that reads the target's states, all from one call.

Chen et al., "DFlash: Block Diffusion for Flash Speculative Decoding" (2026)
(docs/methods/dflash.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.drafter import Log
from specjax.contracts.env import Env
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.drafting.chain import Progress
from specjax.drafting.on_target import OnTarget, TargetStates
from specjax.models.base import Cache
from specjax.models.dflash import DFlash as Model
from specjax.models.vocabularies import unwrap


@DRAFTERS.register("dflash", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class DFlash(OnTarget):
    """Tokens of masks that read the target's states, all from one call."""

    drives = Model
    parallel = True

    def check(self, env: Env) -> None:
        """Refuses another target's drafter, and drafts longer than the blocks of its training.

        Raises:
          ValueError: saying what does not fit.
        """
        super().check(env)
        most = unwrap(env[self.model].model).config.block_size - 1
        if self.depth > most:
            raise ValueError(
                f"{self.asking}; {self.model!r} was trained on blocks of {most + 1}"
                f" tokens, the pending one among them, so it must be at most {most}"
            )

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        cache, pending = self.absorbed(env, caches, memory), context.length - 1
        rows, size = len(pending), self.depth + 1
        block = jnp.broadcast_to(get_pending_tokens(context)[:, None], (rows, size))
        at = jnp.broadcast_to(jnp.arange(1, size), (rows, self.depth))
        output, cache = env[self.model].extend(block, cache.replace(length=pending), at=at)
        return output.logits, cache

    def close(
        self, env: Env, caches: Caches, state: Cache, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """What the block left in the cache is not of the text."""
        return {**caches, self.model: state.replace(length=context.length - 1)}, {}, {}
