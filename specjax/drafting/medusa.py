"""A tree of the likeliest tokens of parallel heads, from one call of their trunk.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.1.2 (docs/methods/trees.md). A head knows nothing of the tokens before its own, so
all nodes of a level have the same children.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from specjax.core import fields, tree
from specjax.core.calls import Call
from specjax.core.context import Context
from specjax.core.distribution import Distribution, OneHot, WithoutReplacement
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory
from specjax.core.env import Env
from specjax.core.proposing import draw_in_order
from specjax.core.reader import Reader
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.blockwise import ParallelHeads, head_keys
from specjax.readers.tree import Tree
from specjax.sampling import adjust


@DRAFTERS.register("medusa", example={"widths": (2, 1)})
@dataclasses.dataclass(frozen=True)
class Medusa(ParallelHeads):
    """A tree of parallel heads' likeliest tokens; sampling, drawn without replacement."""

    widths: tuple[int, ...] = fields.listing(
        "a list of integers of at least 1",
        fields.is_positive,
        help="children of every node, level by level; a head each",
    )

    @property
    def used(self) -> int:
        return len(self.widths)

    @property
    def asking(self) -> str:
        return f"widths is {self.widths}, of {self.used} levels"

    @property
    def spec(self) -> Spec:
        nodes = sum(math.prod(self.widths[:level]) for level in range(1, self.used + 1))
        return Spec(
            width=nodes,
            reach=nodes,
            calls=(Call(self.model, self.lag, self.used),),
            models=(self.model,),
            resources=(self.heads,),
            writers=(self.model,),
            always=True,
            trees=True,
            shared=True,
        )

    @property
    def reader(self) -> Reader:
        return Tree()

    def check(self, env: Env) -> None:
        super().check(env)
        vocabulary = env[self.model].model.vocab_size
        if max(self.widths) > vocabulary:
            raise ValueError(
                f"widths is {self.widths}; a node has at most as many children as there are tokens,"
                f" {vocabulary:,}"
            )

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        logits, caches, log = self.logits(env, caches, context)
        parents, levels, ranks = tree.regular(self.widths)
        most = max(self.widths)
        if context.options.sampling.greedy:
            best = jax.lax.top_k(logits, most)[1]
            tokens = best[:, levels, ranks]
            distribution: Distribution = OneHot(tokens)
        else:
            probs = adjust(logits, context.options.sampling)
            drawn = draw_in_order(head_keys(keys, self.used), probs, most)
            tokens = drawn[:, levels, ranks]
            distribution = WithoutReplacement(probs, drawn, levels, ranks)
        draft = Draft.chain(tokens, distribution=distribution)
        parents = jnp.broadcast_to(jnp.array(parents, jnp.int32), tokens.shape)
        return draft.replace(parents=parents), caches, memory, log
