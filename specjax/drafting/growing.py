"""Grows trees from a proposer, level by level.

Growing ends when no row needs another level: at the row's limit, or at the end of all paths. Cai et
al. (2024) and Chen et al., "Sequoia" (2024) for trees of a fixed shape; Li et al., "EAGLE-2" (2024)
for those of the most probable nodes (docs/methods/trees.md). B batch rows, G nodes of the tree, D
distributions, W most children of a node, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.contracts.context import Context, fold_keys
from specjax.contracts.distribution import (
    Distribution,
    OneHot,
    WithoutReplacement,
    draw_without_replacement,
)
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Log, count_calls
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import BoundProcessors, bind_processors
from specjax.contracts.rows import Caches, run_if
from specjax.drafting.nodes import Nodes, ProposerMemory
from specjax.drafting.shape import Shape
from specjax.sampling import Sampling, adjust, find_largest

if TYPE_CHECKING:
    from specjax.drafting.proposer import Proposer


class TreeProgress(struct.PyTreeNode):
    """Carry: the levels so far; nodes that are not grown are zeros."""

    tokens: jax.Array  # [B, G] int32
    ended: jax.Array  # [B, G] bool: the text ends with the node or above it
    drawn: jax.Array | None  # [B, D, W] int32: of each distribution; None: certain tokens
    probs: jax.Array | None  # [B, D, V] float32; None: certain tokens
    score: jax.Array | None  # [B, G] float32: logarithm of the drafter's probability of the path
    levels: jax.Array  # [B] int32: levels that the row needed, the drafter's calls
    going: jax.Array  # [B] bool: the row needs the next level
    state: Any  # of the proposer


def draft(
    proposer: Proposer,
    shape: Shape,
    env: Env,
    caches: Caches,
    memory: ProposerMemory,
    context: Context,
    keys: jax.Array,
) -> tuple[Draft, Caches, ProposerMemory, Log]:
    """The tree, or its most probable nodes; each row has only the levels that it needed."""
    logits, state = proposer.open(env, caches, memory.own, context)
    growth = _Growth(proposer, shape, env, bind_processors(context, logits.shape[-1]), keys)
    grown = growth.grow_from(0, logits[:, None], growth.begin(logits, state))
    made = _tree(shape, grown)
    if grown.score is not None:
        made = select_most_probable(made, grown.score, proposer.nodes)
    caches, *_ = proposer.close(env, caches, grown.state, context, None)
    runs = context.active.astype(jnp.int32) if proposer.single_call else grown.levels
    log = count_calls({proposer.part: runs}) if proposer.calls else {}
    return made, caches, memory, log


@dataclasses.dataclass(frozen=True)
class _Growth:
    """The shared arguments of all levels of a tree."""

    proposer: Proposer
    shape: Shape
    env: Env
    settings: BoundProcessors
    keys: jax.Array  # [B]

    @property
    def context(self) -> Context:
        return self.settings.context

    @property
    def certain(self) -> bool:
        """Whether children are the most probable tokens, not samples.

        Choosing among sampled nodes by their probability would change their distribution.
        """
        return self.context.options.sampling.greedy or self.proposer.nodes > 0

    def begin(self, logits: jax.Array, state: Any) -> TreeProgress:
        """The progress before the first level."""
        shape, (rows, vocabulary) = self.shape, logits.shape
        count, scored = len(shape.inner) + 1, self.proposer.nodes > 0
        return TreeProgress(
            tokens=jnp.zeros((rows, shape.size), jnp.int32),
            ended=jnp.zeros((rows, shape.size), bool),
            drawn=None if self.certain else jnp.zeros((rows, count, shape.most), jnp.int32),
            probs=None if self.certain else jnp.zeros((rows, count, vocabulary), jnp.float32),
            score=jnp.zeros((rows, shape.size), jnp.float32) if scored else None,
            levels=jnp.zeros((rows,), jnp.int32),
            going=self.context.most > 0,
            state=state,
        )

    def grow_from(self, depth: int, logits: jax.Array, grown: TreeProgress) -> TreeProgress:
        """The children of the nodes of logits [B, m, V], and all levels below them.

        Each level is a loop of at most one turn within that of the level above.
        """
        grown = self._grow_level(depth, logits, grown)
        if depth + 1 == self.shape.levels:
            return grown

        def grow_deeper(grown: TreeProgress) -> TreeProgress:
            logits, state = self._feed(depth, grown)
            return self.grow_from(depth + 1, logits, grown.replace(state=state))

        return run_if(jnp.any(grown.going), grow_deeper, grown)

    def _feed(self, depth: int, grown: TreeProgress) -> tuple[jax.Array, Any]:
        """Logits [B, m, V] after the nodes of a level that have children."""
        nodes = np.array(self.shape.list_fed_nodes(depth))
        paths = np.array([self.shape.path(node) for node in nodes])
        placement = _placement(self.shape, depth, self.context.length)
        numbers = np.array(self.shape.slots)[nodes] + 1
        parents = np.array(self.shape.distributions)[nodes]
        fed = Nodes(
            grown.tokens[:, nodes], depth + 1, grown.tokens, paths, numbers, parents, placement
        )
        return self.proposer.feed(self.env, grown.state, fed)

    def _grow_level(self, depth: int, logits: jax.Array, grown: TreeProgress) -> TreeProgress:
        """Adds the nodes of a level, from the logits [B, m, V] after their parents."""
        shape, sampling = self.shape, self.context.options.sampling
        nodes = np.array(shape.level(depth))
        parents = np.array(shape.parents)[nodes]
        numbers, ranks = np.array(shape.distributions)[nodes], np.array(shape.ranks)[nodes]
        first, probs, score = numbers[0], grown.probs, grown.score
        paths = np.array([shape.path(node) for node in dict.fromkeys(parents.tolist())], int)
        logits = self.settings.process_paths(logits, grown.tokens[:, paths], jnp.array(depth))
        if probs is None:
            drawn = find_largest(logits, ranks.max() + 1)
        else:
            adjusted = adjust(logits, sampling)
            each = first + jnp.arange(logits.shape[1])
            own_keys = jax.vmap(fold_keys, (None, 0), out_axes=1)(self.keys, each)
            drawn = draw_without_replacement(own_keys, adjusted, shape.most)
            probs = _put(probs, adjusted, first)
        tokens = drawn[:, numbers - first, ranks]
        if score is not None:
            chance = jnp.take_along_axis(log_probability(logits, sampling), drawn, axis=-1)
            own = chance[:, numbers - first, ranks]
            score = _put(score, own + (score[:, parents] if depth else 0.0), nodes[0])
        ended = jnp.isin(tokens, jnp.array(self.env.target.info.eos))
        ended = _put(grown.ended, ended | (grown.ended[:, parents] if depth else False), nodes[0])
        fed = np.array(shape.list_fed_nodes(depth), int)
        more = (depth + 1 < self.context.most) & jnp.any(~ended[:, fed], axis=1)
        return grown.replace(
            tokens=_put(grown.tokens, tokens, nodes[0]),
            ended=ended,
            drawn=None if grown.drawn is None else _put(grown.drawn, drawn, first),
            probs=probs,
            score=score,
            levels=grown.levels + grown.going,
            going=grown.going & more,
        )


def _placement(shape: Shape, depth: int, length: jax.Array) -> dict[str, jax.Array]:
    """The placement of the fed nodes of a level and of those before them.

    None if they form a chain, which is a model's default. `length` [B] is that of the texts.
    """
    before = [node for node in shape.inner if shape.depths[node] <= depth]
    if len(before) == depth + 1:
        return {}
    position = length[:, None] + jnp.array([shape.depths[node] for node in before])
    rows = shape.visible[np.ix_(shape.list_fed_nodes(depth), before)]
    visible = jnp.broadcast_to(rows, (len(length), *rows.shape))
    return {"position": position, "visible": visible}


def _tree(shape: Shape, grown: TreeProgress) -> Draft:
    """All levels that each row needed."""
    tokens = grown.tokens
    sizes = jnp.array([0, *(shape.level(depth).stop for depth in range(shape.levels))])
    length, fed = sizes[grown.levels], sizes[jnp.maximum(grown.levels - 1, 0)]
    parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
    was_fed = jnp.arange(shape.size) < fed[:, None]
    return Draft.chain(tokens, length, _distribution(shape, grown)).replace(
        parents=parents, slots=jnp.where(was_fed, jnp.array(shape.slots, jnp.int32), -1)
    )


def _distribution(shape: Shape, grown: TreeProgress) -> Distribution:
    if grown.probs is None or grown.drawn is None:
        return OneHot(grown.tokens)
    return WithoutReplacement.from_draws(grown.probs, grown.drawn, shape.distributions, shape.ranks)


def _put(rows: jax.Array, values: jax.Array, first: int) -> jax.Array:
    """rows [B, N, ...] with values [B, n, ...] from column `first` on."""
    return jax.lax.dynamic_update_slice_in_dim(rows, values, int(first), axis=1)


def log_probability(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Log probability of every token; the plain one of a greedy drafter, not one-hot."""
    if sampling.greedy:
        return jax.nn.log_softmax(logits, axis=-1)
    return jnp.log(adjust(logits, sampling))


def select_most_probable(draft: Draft, score: jax.Array, count: int) -> Draft:
    """The tree's `count` nodes of largest score [B, K], in their order; tokens must be certain.

    No node scores higher than its parent, and ties go to the first one, so parents are kept. Nodes
    at and beyond the draft's length come last.
    """
    score = jnp.where(jnp.arange(draft.width) < draft.length[:, None], score, -jnp.inf)
    return select_nodes(draft, jnp.sort(jax.lax.top_k(score, count)[1], axis=1))


def select_nodes(draft: Draft, kept: jax.Array) -> Draft:
    """The tree of the nodes `kept` [B, n], whose parents are kept too; tokens must be certain."""
    rows, count = jnp.arange(len(kept))[:, None], kept.shape[1]
    place = jnp.zeros_like(draft.tokens).at[rows, kept].set(jnp.arange(count))
    parents = draft.tree_parents[rows, kept]
    parents = jnp.where(parents < 0, -1, place[rows, parents])
    made = Draft.chain(draft.tokens[rows, kept], jnp.minimum(draft.length, count))
    slots = None if draft.slots is None else draft.slots[rows, kept]
    return made.replace(parents=parents, slots=slots, drafted_by=draft.drafted_by[rows, kept])
