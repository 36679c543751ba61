"""A tree of the likeliest tokens of parallel heads, from one state.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.1.2 (docs/methods/trees.md). A head knows nothing of the tokens before its own, so
nodes of a level have the same children, the first of them where they have fewer.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core.adjustment import adjusting
from specjax.core.context import Context
from specjax.core.distribution import Distribution, OneHot, WithoutReplacement
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory
from specjax.core.env import Env
from specjax.core.proposing import draw_in_order
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.blockwise import IndependentHeads
from specjax.drafting.parallel_heads import head_keys
from specjax.drafting.shape import Shaped
from specjax.sampling import adjust, largest


@DRAFTERS.register("medusa", example={"widths": (2, 1)})
@dataclasses.dataclass(frozen=True)
class Medusa(Shaped, IndependentHeads):
    """A tree of parallel heads' likeliest tokens; sampling, drawn without replacement."""

    @property
    def used(self) -> int:
        return self.shape.levels

    @property
    def asking(self) -> str:
        return f"{self.given} is {getattr(self, self.given)}, of {self.used} levels"

    @property
    def spec(self) -> Spec:
        return self._tree_spec(reach=self.shape.size, shared=True, **self._common())

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit, and more children than there are tokens.

        Raises:
          ValueError: saying what does not.
        """
        super().check(env)
        self.check_children(env[self.model].model.vocab_size)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        logits, caches, log = self.logits(env, caches, memory, context)
        logits = adjusting(context, logits.shape[-1]).in_parallel(logits)
        shape = self.shape
        levels, ranks = shape.depths, shape.ranks
        if context.options.sampling.greedy:
            best = largest(logits, shape.most)
            tokens = best[:, levels, ranks]
            distribution: Distribution = OneHot(tokens)
        else:
            probs = adjust(logits, context.options.sampling)
            drawn = draw_in_order(head_keys(keys, self.used), probs, shape.most)
            tokens = drawn[:, levels, ranks]
            distribution = WithoutReplacement.from_draws(probs, drawn, levels, ranks)
        draft = Draft.chain(tokens, distribution=distribution)
        parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
        return draft.replace(parents=parents), caches, memory, log
