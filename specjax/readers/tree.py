"""The target reads a tree of drafted tokens in one call (docs/methods/trees.md)."""

from __future__ import annotations

import dataclasses

import jax

from specjax.core import tree
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.env import Env
from specjax.core.reader import Judge, Reader
from specjax.core.verdict import Reading, Verdict
from specjax.models.base import Cache
from specjax.readers.whole import read_from


@dataclasses.dataclass(frozen=True)
class Tree(Reader):
    """Each node sees the text, its ancestors and itself, at the position of its depth.

    Afterwards the cache holds the nodes behind its pointer, in their order.
    """

    @property
    def trees(self) -> bool:
        return True

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, jax.Array]]:
        visible = tree.ancestor_mask(draft.tree_parents)
        position = cache.length[:, None] + tree.depth(visible)
        pending = cache.length + 1
        verdict, reading, cache, log = read_from(
            env, cache, draft, context, judge, features, position=position, visible=visible
        )
        return verdict, reading, cache.replace(length=pending), log
