"""Several copies from context, side by side: what followed different earlier occurrences.

Prompt lookup with branches, verified as a tree (docs/methods/trees.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.context import Context
from specjax.core.draft import LENGTH, NO_MATCH, Draft
from specjax.core.drafter import STOP, Log, Memory
from specjax.core.env import Env
from specjax.core.reader import Reader
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.copying import (
    PromptLookup,
    best_match,
    match_sizes,
    pattern_length,
    repeated,
    text,
)
from specjax.readers.tree import Tree


@DRAFTERS.register("copy_tree", example={"length": 3, "branches": 2, "longest": 8})
@dataclasses.dataclass(frozen=True)
class CopyTree(PromptLookup):
    """What followed the longest earlier occurrences of the last tokens, each begun otherwise."""

    branches: int = fields.integer(2, least=1, help="continuations, which differ in first tokens")

    @property
    def spec(self) -> Spec:
        nodes = self.branches * self.length
        return Spec(width=nodes, writers=("copy",), trees=True, levels=self.length)

    @property
    def reader(self) -> Reader:
        return Tree()

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        joined, length = text(context, spare=0)
        sizes = match_sizes(joined, length, pattern_length(context), self.longest)
        sizes = jnp.where(sizes >= self.shortest, sizes, 0)
        following = jnp.roll(joined, -1, axis=1)
        copies, matched = [], jnp.zeros_like(length)
        for _ in range(self.branches):
            begin, size = best_match(sizes)
            copies.append(repeated(joined, begin[:, None], length, self.length)[:, 0])
            matched += size > 0
            # The next copy begins with another token.
            sizes = jnp.where(following == copies[-1][:, :1], 0, sizes)
        tokens = jnp.concatenate(copies, axis=1)
        draft = Draft.chain(tokens, matched * self.length)
        parents = jnp.broadcast_to(self._parents(), tokens.shape)
        stop = jnp.where(matched > 0, LENGTH, NO_MATCH)
        return draft.replace(parents=parents), caches, memory, {STOP: stop}

    def _parents(self) -> jax.Array:
        """Chains one after another; the first of each hangs on the pending token."""
        node = jnp.arange(self.branches * self.length)
        return jnp.where(node % self.length == 0, -1, node - 1)
