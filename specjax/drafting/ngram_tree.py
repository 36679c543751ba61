"""A tree of fitted counts: behind every node its likeliest successors (docs/methods/trees.md)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from specjax.core import fields
from specjax.core.context import Context, last_token
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.ngram import Table
from specjax.drafting.shape import Shaped
from specjax.sampling import largest


@DRAFTERS.register("ngram_tree", example={"widths": (2, 2)})
@dataclasses.dataclass(frozen=True)
class NgramTree(Shaped):
    """A tree of likeliest successors, from fitted counts."""

    table: str = fields.counts()

    @property
    def spec(self) -> Spec:
        return self._tree_spec(resources=(self.table,), writers=("ngram_tree",))

    def check(self, env: Env) -> None:
        """Refuses more children than there are tokens.

        Raises:
          ValueError: saying how many.
        """
        self.check_children(env.target.vocab_size)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        table, shape = env.params[self.table], self.shape
        above, first = last_token(context)[:, None], -1
        levels = []
        for depth in range(shape.levels):
            nodes = np.array(shape.level(depth))
            ranks = np.array(shape.ranks)[nodes]
            children = successors(table, above, ranks.max() + 1)
            levels.append(children[:, np.array(shape.parents)[nodes] - first, ranks])
            above, first = levels[-1], nodes[0]
        tokens = jnp.concatenate(levels, axis=1)
        parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
        return Draft.chain(tokens).replace(parents=parents), caches, memory, {}


def successors(table: Table, previous: jax.Array, count: int) -> jax.Array:
    """The `count` likeliest successors [B, N, count] of previous [B, N], all different.

    Those that were seen, the most frequent first; then, as unseen ones are all equally likely by
    the counts of pairs, the most frequent tokens of all.
    """
    ids, counts = table["ids"][previous, :count], table["counts"][previous, :count]
    often = largest(table["unigram"], count)
    repeated = jnp.any(often[:, None] == ids[..., None, :], axis=-1)
    tokens = jnp.concatenate([ids, jnp.broadcast_to(often, repeated.shape)], axis=-1)
    wanted = jnp.concatenate([counts > 0, ~repeated], axis=-1)
    best = jnp.argsort(~wanted, axis=-1, stable=True)[..., :count]
    return jnp.take_along_axis(tokens, best, axis=-1).astype(jnp.int32)
