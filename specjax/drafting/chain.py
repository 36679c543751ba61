"""Draws a chain from a proposer, one token at a time, up to a length or a stop.

Leviathan et al. (2023), Algorithm 1. Stop predicates look at the logits before a token is drawn,
which keeps speculative sampling lossless. B batch rows, K drafted tokens, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Context, fold_keys
from specjax.contracts.distribution import make_distribution, propose
from specjax.contracts.draft import LENGTH, STOPPED, Draft
from specjax.contracts.drafter import STOP, Log, count_calls
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import BoundProcessors, bind_processors
from specjax.contracts.rows import Caches, run_if
from specjax.drafting.adaptive_length import ACCEPTANCE, BREAK_EVEN, best_length, min_chance
from specjax.drafting.nodes import Nodes, ProposerMemory
from specjax.sampling import compute_confidence
from specjax.verification.distances import LOGITS

if TYPE_CHECKING:
    from specjax.drafting.proposer import Proposer


class Progress(struct.PyTreeNode):
    """Carry of the loop; `going` rows drafted token `step - 1` and may draft another."""

    step: jax.Array  # []
    tokens: jax.Array  # [B, K]
    probs: jax.Array | None  # [B, K, V]
    logits: jax.Array | None  # [B, K, V]
    plain: jax.Array | None  # [B, K, V] probabilities at temperature 1, to learn from
    length: jax.Array  # [B]
    going: jax.Array  # [B]
    stopped: jax.Array  # [B] the predicate ended the draft
    chance: jax.Array  # [B] float32: that all drafted tokens are accepted, by confidence
    calls: jax.Array  # [B]
    state: Any  # of the proposer


def draft(
    proposer: Proposer,
    env: Env,
    caches: Caches,
    memory: ProposerMemory,
    context: Context,
    keys: jax.Array,
    *,
    keeps_logits: bool = False,
) -> tuple[Draft, Caches, ProposerMemory, Log]:
    """The drafted chain; `keeps_logits` stores its logits in `Draft.aux`, for the rule."""
    logits, state = proposer.open(env, caches, memory.own, context)
    progress = _empty(proposer, memory, context, logits, state, keeps_logits)
    drawing = _Drawing(proposer, env, memory, bind_processors(context, logits.shape[-1]), keys)
    progress = drawing.extend(progress, logits)
    wanted = jnp.minimum(longest(proposer, memory, context), context.most)

    def more(p: Progress) -> jax.Array:
        return jnp.any(p.going & (p.length < wanted))

    def step(p: Progress, depth: int | None = None) -> Progress:
        p = p.replace(going=p.going & (p.length < wanted))
        logits, p = drawing.feed(p.replace(calls=p.calls + p.going), depth)
        return drawing.extend(p, logits)

    if proposer.needs_static_depth:
        for depth in range(1, proposer.depth):
            at_depth = functools.partial(step, depth=depth)
            progress = run_if(more(progress), at_depth, progress)
    else:
        progress = jax.lax.while_loop(more, step, progress)
    caches, aux, runs = proposer.close(env, caches, progress.state, context, progress)
    if progress.logits is not None:
        aux = {**aux, LOGITS: progress.logits}
    if memory.learned is not None:
        memory = memory.replace(learned=memory.learned.replace(drafted=progress.plain))
    distribution = make_distribution(progress.tokens, progress.probs)
    made = Draft.chain(progress.tokens, progress.length, distribution, aux=aux or None)
    log = {STOP: jnp.where(progress.stopped, STOPPED, LENGTH)}
    if proposer.calls:
        calls = context.active.astype(jnp.int32) if proposer.single_call else progress.calls
        log |= count_calls({proposer.part: calls, **runs})
    return made, caches, memory, log


def longest(proposer: Proposer, memory: ProposerMemory, context: Context) -> jax.Array | int:
    """The most tokens [B] that a row drafts."""
    if proposer.adapt == ACCEPTANCE:
        assert memory.acceptance_counts is not None
        return best_length(memory.acceptance_counts, proposer.depth, context.options.numbers)
    return proposer.depth


def _empty(
    proposer: Proposer,
    memory: ProposerMemory,
    context: Context,
    logits: jax.Array,
    state: Any,
    keeps_logits: bool,
) -> Progress:
    """The progress before the first token."""
    rows, vocabulary = logits.shape
    zeros = jnp.zeros((rows, proposer.depth, vocabulary), jnp.float32)
    return Progress(
        step=jnp.int32(0),
        tokens=jnp.zeros((rows, proposer.depth), jnp.int32),
        probs=None if context.options.sampling.greedy else zeros,
        logits=zeros if keeps_logits else None,
        plain=None if memory.learned is None else zeros,
        length=jnp.zeros((rows,), jnp.int32),
        going=context.most > 0,
        stopped=jnp.zeros((rows,), bool),
        chance=jnp.ones((rows,), jnp.float32),
        calls=context.active.astype(jnp.int32),
        state=state,
    )


@dataclasses.dataclass(frozen=True)
class _Drawing:
    """The shared arguments of all steps of a chain."""

    proposer: Proposer
    env: Env
    memory: ProposerMemory
    settings: BoundProcessors
    keys: jax.Array  # [B]

    def feed(self, p: Progress, depth: int | None) -> tuple[jax.Array, Progress]:
        """Feeds the last drafted token, at a static depth if given; returns its logits [B, V]."""
        fed = jax.lax.dynamic_slice_in_dim(p.tokens, p.step - 1, 1, axis=1)
        nodes = Nodes(fed, p.step if depth is None else depth, p.tokens)
        logits, state = self.proposer.feed(self.env, p.state, nodes)
        return logits[:, 0], p.replace(state=state)

    def extend(self, p: Progress, logits: jax.Array) -> Progress:
        """Appends a token drawn from logits [B, V] to the rows that continue."""
        options, learned = self.settings.context.options, self.memory.learned
        going, numbers = p.going, options.numbers
        if learned is not None:
            logits = logits + learned.bias
        own, logits = logits, self.settings.process_next(logits, p.tokens, p.step)
        if self.proposer.can_stop:
            going &= self.proposer.is_sure(logits, numbers, p.state)
        token, probs = propose(logits, options.sampling, fold_keys(self.keys, p.step))
        ended = jnp.isin(token, jnp.array(self.proposer.ends(self.env)))
        stopped = p.stopped | (p.going & ~going)
        chance = p.chance
        if self.proposer.adapt == BREAK_EVEN:
            assert self.memory.acceptance_counts is not None
            chance *= compute_confidence(logits)
            least = min_chance(self.memory.acceptance_counts, self.proposer.depth, numbers)
            given_up = chance < least
            stopped |= going & given_up & ~ended & (p.step + 1 < self.proposer.depth)
            ended |= given_up
        return p.replace(
            step=p.step + 1,
            tokens=_put(p.tokens, token, p.step),
            probs=None if probs is None or p.probs is None else _put(p.probs, probs, p.step),
            logits=None if p.logits is None else _put(p.logits, logits, p.step),
            plain=None if p.plain is None else _put(p.plain, jax.nn.softmax(own), p.step),
            length=p.length + going,
            going=going & ~ended,
            stopped=stopped,
            chance=chance,
        )


def _put(rows: jax.Array, value: jax.Array, step: jax.Array) -> jax.Array:
    """rows [B, K, ...] with value [B, ...] at position `step`."""
    return jax.lax.dynamic_update_slice_in_dim(rows, value[:, None], step, axis=1)
