"""The beam step: from the live hypotheses to the next ones, as in transformers.

Letters: B batch rows, W beams, X candidates, V vocabulary, M most new tokens. A hypothesis is named
by its step (how many tokens it has) and its rank among the W of that step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Options
from specjax.sampling import Sampling, find_largest


class Scoring(struct.PyTreeNode):
    """Scores of finished hypotheses, the stopping criterion, and settings.

    Made on the host (`strategy.scoring`), in double precision as Python computes powers.
    """

    divisor: jax.Array  # [M + 1] float32: a score is divided by that of its number of tokens
    bound: jax.Array  # [M + 1] float32: divisors of the best live one, to test if it may win
    first: jax.Array  # [] bool: a row ends as soon as W hypotheses are finished
    options: Options = struct.field(default_factory=lambda: Options(Sampling(greedy=True), {}))


class Candidates(struct.PyTreeNode):
    """The most probable next tokens of nodes, by descending log-probability."""

    logp: jax.Array  # [B, N, X] float32
    token: jax.Array  # [B, N, X] int32


class FinishedHypotheses(struct.PyTreeNode):
    """The best finished hypotheses by descending score: a parent hypothesis and one more token."""

    score: jax.Array  # [B, W] float32: log-probability over divisor; -inf where there is none
    step: jax.Array  # [B, W] int32: of the parent hypothesis
    rank: jax.Array  # [B, W] int32: of the parent hypothesis
    token: jax.Array  # [B, W] int32


class Live(struct.PyTreeNode):
    """The hypotheses to extend, by descending score."""

    score: jax.Array  # [B, W] float32: log-probability; -inf where there is none
    token: jax.Array  # [B, W] int32: the last one, which no model has read
    rank: jax.Array  # [B, W] int32: of its parent in the previous step


T = TypeVar("T", Live, FinishedHypotheses)


def count_kept(beams: int, ends: int) -> int:
    """Number of candidates X of a step, such that W of them do not end the text."""
    return max(2, 1 + ends) * beams


def candidates(
    logits: jax.Array,
    count: int,
    barred: jax.Array | None = None,
    adjust: Callable[[jax.Array], jax.Array] | None = None,
) -> Candidates:
    """The `count` most probable tokens after each node, without the `barred` [V].

    `logits` [B, N, V]. More tokens of one node cannot be among the best `count` of all nodes. No
    other array of the vocabulary's width is kept, except log-probabilities that settings `adjust`.
    """
    rows, nodes, vocabulary = logits.shape
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    if adjust is not None:
        logits, total = adjust(logits - total), jnp.zeros_like(total)
    flat = logits.reshape(rows * nodes, vocabulary)
    flat = flat if barred is None else jnp.where(barred, -jnp.inf, flat)
    token = find_largest(flat, count)
    logp = jnp.take_along_axis(flat, token, axis=-1) - total.reshape(rows * nodes, 1)
    shape = rows, nodes, count
    return Candidates(logp.reshape(shape), token.reshape(shape))


def select_best(score: jax.Array, found: Candidates, count: int) -> Live:
    """The `count` best continuations [B, count] of hypotheses of `score` [B, N].

    Ties go to the lower rank, then to the more probable token.
    """
    rows, _, each = found.logp.shape
    total = (score[..., None] + found.logp).reshape(rows, -1)
    best, index = jax.lax.top_k(total, count)
    token = jnp.take_along_axis(found.token.reshape(rows, -1), index, axis=1)
    return Live(best, token, index // each)


def beam_step(
    scoring: Scoring,
    eos: tuple[int, ...],
    score: jax.Array,
    step: jax.Array,
    found: Candidates,
    finished: FinishedHypotheses,
) -> tuple[Live, FinishedHypotheses, jax.Array]:
    """The next live hypotheses, the finished ones, and a mask [B] of unfinished rows.

    Takes live hypotheses of `score` [B, W], all with `step` [B] tokens, and their candidates [B, W,
    X]. Only the W best candidates may finish; the others ensure that W remain live.
    """
    beams = score.shape[1]
    best = select_best(score, found, found.logp.shape[2])
    most = len(scoring.divisor) - 1
    length = step + 1
    at = jnp.minimum(length, most)
    ends = jnp.isin(best.token, jnp.array(eos, jnp.int32)) | (length >= most)[:, None]
    finished = _merge_finished(finished, best, ends, step, scoring.divisor[at])
    live = _reorder(best.replace(score=jnp.where(ends, -jnp.inf, best.score)), beams)
    worst = finished.score[:, -1]
    may_win = live.score[:, 0] / scoring.bound[at] > worst
    full = scoring.first & (worst > -jnp.inf)
    return live, finished, may_win & ~full & (length < most)


def _merge_finished(
    finished: FinishedHypotheses, best: Live, ends: jax.Array, step: jax.Array, divisor: jax.Array
) -> FinishedHypotheses:
    """The best W of the finished hypotheses and the first W candidates that end."""
    rows, beams = finished.score.shape
    score = jnp.where(ends, best.score / divisor[:, None], -jnp.inf)[:, :beams]
    steps = jnp.broadcast_to(step[:, None], (rows, beams))
    new = FinishedHypotheses(score, steps, best.rank[:, :beams], best.token[:, :beams])
    both = jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=1), finished, new)
    return _reorder(both, beams)


def _reorder(these: T, count: int) -> T:
    """The best `count` hypotheses by descending score."""
    order = jax.lax.top_k(these.score, count)[1]
    return jax.tree.map(lambda x: jnp.take_along_axis(x, order, axis=1), these)
