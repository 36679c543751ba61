"""Drafts of a parallel proposer, which gives the distributions of all depths at once.

Tokens of a chain are drawn independently given the prefix, which the lossless rules allow: they
test each token against the distribution it was drawn from (Stern et al. (2018),
docs/methods/medusa.md). Nodes of a tree's level share the distribution of their depth, so they have
the same children, or the first of them (Cai et al., "Medusa" (2024), section 2.1.2). B batch rows,
K depths, G nodes, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from specjax.contracts.context import Context, fold_keys
from specjax.contracts.distribution import (
    Distribution,
    OneHot,
    WithoutReplacement,
    draw_without_replacement,
    make_distribution,
    propose,
)
from specjax.contracts.draft import LENGTH, STOPPED, Draft
from specjax.contracts.drafter import STOP, Log, count_calls
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import bind_processors
from specjax.contracts.rows import Caches, count_until_eos
from specjax.drafting.adaptive_length import ACCEPTANCE, BREAK_EVEN, min_chance
from specjax.drafting.chain import longest
from specjax.drafting.growing import log_probability, select_most_probable
from specjax.drafting.nodes import ProposerMemory
from specjax.drafting.shape import Shape
from specjax.sampling import adjust, compute_confidence, find_largest

if TYPE_CHECKING:
    from specjax.drafting.proposer import Proposer


def draft(
    proposer: Proposer,
    env: Env,
    caches: Caches,
    memory: ProposerMemory,
    context: Context,
    keys: jax.Array,
) -> tuple[Draft, Caches, ProposerMemory, Log]:
    """The drafted chain or tree."""
    logits, state = proposer.open(env, caches, memory.own, context)
    log: Log = {}
    if proposer.shape:
        made = _tree(proposer, proposer.shape, logits, context, keys)
    elif proposer.jetspec_width:
        made = _jetspec_tree(proposer.nodes, proposer.jetspec_width, logits, context)
    elif proposer.nodes:
        made = _best_tree(proposer.nodes, logits, context)
    else:
        if memory.learned is not None:
            logits = logits + memory.learned.bias[:, None]
            learned = memory.learned.replace(drafted=jax.nn.softmax(logits))
            memory = memory.replace(learned=learned)
        made, log = _chain(proposer, env, logits, memory, context, keys)
    caches, *_ = proposer.close(env, caches, state, context, None)
    if proposer.calls:
        log |= count_calls({proposer.part: context.active.astype(jnp.int32)})
    return made, caches, memory, log


def _chain(
    proposer: Proposer,
    env: Env,
    logits: jax.Array,
    memory: ProposerMemory,
    context: Context,
    keys: jax.Array,
) -> tuple[Draft, Log]:
    """Tokens [B, K], each from its own logits [B, K, V].

    Settings depend only on the committed tokens and the length of the text. Drafted tokens do not
    change the distributions, so the end of the draft is known before drawing.
    """
    options = context.options
    adjusted = bind_processors(context, logits.shape[-1]).process_parallel(logits)
    per_depth = jax.vmap(propose, in_axes=(1, None, 1), out_axes=1)
    tokens, probs = per_depth(adjusted, options.sampling, _keys(keys, logits.shape[1]))
    length = count_until_eos(tokens, proposer.ends(env))
    stopped = jnp.zeros_like(context.active)
    if proposer.can_stop:
        sure = proposer.is_sure(logits, options.numbers)
        run = jnp.sum(jnp.cumprod(sure, axis=1), axis=1, dtype=jnp.int32)
        stopped, length = run < length, jnp.minimum(run, length)
    if proposer.adapt == BREAK_EVEN:
        assert memory.acceptance_counts is not None
        chance = jnp.cumprod(compute_confidence(logits), axis=1)
        least = min_chance(memory.acceptance_counts, proposer.depth, options.numbers)
        run = 1 + jnp.sum(chance[:, :-1] >= least[:, None], axis=1, dtype=jnp.int32)
        stopped, length = stopped | (run < length), jnp.minimum(run, length)
    if proposer.adapt == ACCEPTANCE:
        length = jnp.minimum(length, longest(proposer, memory, context))
    log = {STOP: jnp.where(stopped, STOPPED, LENGTH)}
    return Draft.chain(tokens, length, make_distribution(tokens, probs)), log


def _tree(
    proposer: Proposer, shape: Shape, logits: jax.Array, context: Context, keys: jax.Array
) -> Draft:
    """The tree, or its most probable nodes, from the logits [B, K, V] of its levels."""
    sampling = context.options.sampling
    logits = bind_processors(context, logits.shape[-1]).process_parallel(logits)
    levels, ranks = shape.depths, shape.ranks
    if sampling.greedy or proposer.nodes:
        best = find_largest(logits, shape.most)
        tokens = best[:, levels, ranks]
        distribution: Distribution = OneHot(tokens)
    else:
        probs = adjust(logits, sampling)
        best = draw_without_replacement(_keys(keys, shape.levels), probs, shape.most)
        tokens = best[:, levels, ranks]
        distribution = WithoutReplacement.from_draws(probs, best, levels, ranks)
    parents = jnp.broadcast_to(jnp.array(shape.parents, jnp.int32), tokens.shape)
    made = Draft.chain(tokens, distribution=distribution).replace(parents=parents)
    if not proposer.nodes:
        return made
    chance = jnp.take_along_axis(log_probability(logits, sampling), best, axis=-1)
    score = _along_paths(shape, chance[:, levels, ranks])
    return select_most_probable(made, score, proposer.nodes)


def _best_tree(count: int, logits: jax.Array, context: Context) -> Draft:
    """The `count` most probable nodes of all trees of K levels, from logits [B, K, V].

    A path's probability is the product of its tokens' at their depths. Of each level the `count`
    best nodes are kept, then of all levels: those that DDTree (2026, arXiv 2604.12989) takes from a
    heap. No node scores more than its parent, and of equals the shallower counts first: parents are
    kept.
    """
    logits = bind_processors(context, logits.shape[-1]).process_parallel(logits)
    rows, depth, vocabulary = logits.shape
    ranks = min(count, vocabulary)
    best = find_largest(logits, ranks)
    chance = log_probability(logits, context.options.sampling)
    chance = jnp.take_along_axis(chance, best, axis=-1)
    # Node i of a level has rank j below it among the best only if (i + 1)(j + 1) are no more.
    above, rank = np.array(
        [(i, j) for i in range(count) for j in range(min(count // (i + 1), ranks))]
    ).T
    spare = jnp.full((rows, count - ranks), -jnp.inf)
    scores = [jnp.concatenate([chance[:, 0], spare], axis=1)]
    chosen = [jnp.broadcast_to(jnp.minimum(jnp.arange(count), ranks - 1), (rows, count))]
    parents = [jnp.full((rows, count), -1)]
    for level in range(1, depth):
        score, index = jax.lax.top_k(scores[-1][:, above] + chance[:, level, rank], count)
        scores.append(score)
        chosen.append(jnp.array(rank)[index])
        parents.append(jnp.array(above)[index] + (level - 1) * count)
    tokens = [
        jnp.take_along_axis(best[:, level], each, axis=1) for level, each in enumerate(chosen)
    ]
    made = Draft.chain(jnp.concatenate(tokens, axis=1).astype(jnp.int32))
    made = made.replace(parents=jnp.concatenate(parents, axis=1).astype(jnp.int32))
    return select_most_probable(made, jnp.concatenate(scores, axis=1), count)


def _jetspec_tree(count: int, width: int, logits: jax.Array, context: Context) -> Draft:
    """The first `count` nodes in JetSpec's order (arXiv 2606.18394), from logits [B, K, V].

    The most probable path that has no children yet, of equals the earlier one, gets its `width`
    most probable children, until there are enough nodes. Paths of K tokens get none, so every
    expansion adds `width` nodes, and the last one those that are missing.
    """
    logits = bind_processors(context, logits.shape[-1]).process_parallel(logits)
    rows, depth, _ = logits.shape
    best = find_largest(logits, width)
    chance = log_probability(logits, context.options.sampling)
    chance = jnp.take_along_axis(chance, best, axis=-1)
    row, expansions = jnp.arange(rows), -(-count // width)

    def expand(step: jax.Array, tree: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        score, level, parents, tokens = tree  # [B, 1 + nodes], the pending token first
        # Impossible paths come before those that cannot be expanded.
        open_score = jnp.maximum(score, jnp.finfo(score.dtype).min)
        top = jnp.argmax(jnp.where(level < depth, open_score, -jnp.inf), axis=1)
        below = level[row, top]

        def put(values: jax.Array, children: jax.Array) -> jax.Array:
            children = jnp.broadcast_to(children, (rows, width)).astype(values.dtype)
            return jax.lax.dynamic_update_slice_in_dim(values, children, 1 + step * width, axis=1)

        return (
            put(score, score[row, top][:, None] + chance[row, below]),
            put(level.at[row, top].set(depth), below[:, None] + 1),
            put(parents, top[:, None] - 1),
            put(tokens, best[row, below]),
        )

    zeros = jnp.zeros((rows, 1 + expansions * width), jnp.int32)
    level = jnp.full_like(zeros, depth).at[:, 0].set(0)  # of K: without, or not yet with, children
    first = jnp.zeros(zeros.shape, chance.dtype), level, zeros, zeros
    _, _, parents, tokens = jax.lax.fori_loop(0, expansions, expand, first)
    return Draft.chain(tokens[:, 1 : count + 1]).replace(parents=parents[:, 1 : count + 1])


def _along_paths(shape: Shape, values: jax.Array) -> jax.Array:
    """Sums of values [B, G] along the paths to the nodes; none exceeds its parent's."""
    levels = [values[:, : shape.level(0).stop]]
    for depth in range(1, shape.levels):
        nodes = np.array(shape.level(depth))
        above = np.array(shape.parents)[nodes] - shape.level(depth - 1).start
        levels.append(values[:, nodes] + levels[-1][:, above])
    return jnp.concatenate(levels, axis=1)


def _keys(keys: jax.Array, count: int) -> jax.Array:
    """Keys [B, count] of the depths from keys [B]."""
    return jax.vmap(fold_keys, in_axes=(None, 0), out_axes=1)(keys, jnp.arange(count))
