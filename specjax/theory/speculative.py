"""Closed forms of speculative decoding.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (2023),
sections 3.1 to 3.5, with independent acceptance of every drafted token. Arguments broadcast; times
are in target steps of one token. Every function raises ValueError on impossible arguments.

Letters: `alpha` acceptance rate, `length` draft length (the paper's gamma), `cost` cost coefficient
(the paper's c: one drafter step over one target step), `verification` time of the parallel target
call (the paper's assumption is 1: as fast as a single token); V vocabulary, n drafted positions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count, distribution, non_negative, positive, probability


def overlap(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """sum_x min(p, q) [...] of distributions [..., V]: the acceptance beta of a draft from q.

    Theorem 3.5; the acceptance rate alpha is its mean over prefixes (Corollary 3.6).
    """
    return np.minimum(distribution("p", p), distribution("q", q)).sum(axis=-1)


def total_variation(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """D_LK(p, q) [...] of distributions [..., V]: half the L1 distance, 1 - overlap (Lemma 3.3)."""
    return 0.5 * np.abs(distribution("p", p) - distribution("q", q)).sum(axis=-1)


def rejection_acceptance(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """Acceptance [...] of one-shot rejection sampling of p from q, distributions [..., V].

    min_x q(x) / p(x) over the support of p: a draw from q is accepted with probability p / (M q),
    and M = max p / q is the smallest constant that allows it. Never above `overlap` (appendix A.2).
    """
    p, q = np.broadcast_arrays(distribution("p", p), distribution("q", q))
    return np.divide(q, p, out=np.full(p.shape, np.inf), where=p > 0).min(axis=-1)


def expected_tokens(alpha: ArrayLike, length: ArrayLike) -> np.ndarray:
    """Expected tokens of a round (Eq. 1): 1 + alpha + ... + alpha^length.

    The number of target calls, and so of reads of its weights and cache, falls by this factor.
    """
    alpha, length = probability("alpha", alpha), count("length", length)
    gap = 1.0 - alpha
    # Near alpha = 1 both sides of (1 - alpha^length) / (1 - alpha) would lose all digits.
    power_minus_one = np.expm1(length * np.log(np.maximum(alpha, np.finfo(np.float64).tiny)))
    with np.errstate(invalid="ignore"):
        ratio = np.where(gap > 0, -power_minus_one / gap, length)
    return 1.0 + alpha * ratio


def expected_tokens_by_position(alphas: ArrayLike) -> np.ndarray:
    """Expected tokens [...] of a round whose drafted tokens have acceptance alphas [..., n].

    alphas are conditional on acceptance of all earlier drafts: 1 + sum of their running products.
    """
    return 1.0 + np.cumprod(probability("alphas", alphas), axis=-1).sum(axis=-1)


def improvement(
    tokens: ArrayLike, drafting: ArrayLike, verification: ArrayLike = 1.0
) -> np.ndarray:
    """Speedup over autoregressive decoding of rounds that give `tokens`.

    `drafting` is the time of all drafter calls of a round. One call of a block drafter that
    proposes everything at once costs `cost`, an autoregressive one `length * cost`.
    """
    time = non_negative("drafting", drafting) + non_negative("verification", verification)
    return non_negative("tokens", tokens) / positive("the time of a round", time)


def walltime_improvement(
    alpha: ArrayLike, length: ArrayLike, cost: ArrayLike, verification: ArrayLike = 1.0
) -> np.ndarray:
    """Theorem 3.8: expected tokens of a round over length * cost + verification."""
    drafting = count("length", length) * non_negative("cost", cost)
    return improvement(expected_tokens(alpha, length), drafting, verification)


def guaranteed_improvement(alpha: ArrayLike, cost: ArrayLike) -> np.ndarray:
    """Corollary 3.9: (1 + alpha) / (1 + cost) where alpha > cost, else 1.

    The best draft length reaches at least this. If alpha <= cost no length is faster than none:
    alpha + ... + alpha^length <= length * alpha <= length * cost.
    """
    alpha, cost = probability("alpha", alpha), non_negative("cost", cost)
    return np.maximum(1.0, (1.0 + alpha) / (1.0 + cost))


def operations_factor(
    alpha: ArrayLike, length: ArrayLike, operations_ratio: ArrayLike
) -> np.ndarray:
    """Theorem 3.11: arithmetic operations over those of autoregressive decoding.

    `operations_ratio` is a drafter's operations per token over the target's.
    """
    length, ratio = count("length", length), non_negative("operations_ratio", operations_ratio)
    return (length * ratio + length + 1.0) / expected_tokens(alpha, length)


def optimal_draft_length(
    alpha: ArrayLike, cost: ArrayLike, longest: int, verification: ArrayLike = 1.0
) -> np.ndarray:
    """The draft length [...] of 0 .. longest with the largest improvement; the shortest on ties.

    `verification` is one number or [longest + 1], the time of verifying each number of drafted
    tokens. Section 3.5.
    """
    lengths = np.arange(int(count("longest", longest)) + 1)
    alpha, cost = np.asarray(alpha)[..., None], np.asarray(cost)[..., None]
    return walltime_improvement(alpha, lengths, cost, verification).argmax(axis=-1)


def oracle_improvement(alpha: ArrayLike, cost: ArrayLike) -> np.ndarray:
    """Speedup 1 / (1 - alpha + cost * alpha) of drafting exactly the accepted tokens (section 3.5).

    Such a run has alpha / (1 - alpha) tokens on average. Infinite at alpha = 1 without cost.
    """
    alpha, cost = probability("alpha", alpha), non_negative("cost", cost)
    with np.errstate(divide="ignore"):
        return np.divide(1.0, 1.0 - alpha + cost * alpha)


def accept_rate(alpha: ArrayLike, length: ArrayLike) -> np.ndarray:
    """Expected accepted over generated drafts: (alpha + ... + alpha^length) / length.

    Every round generates `length` >= 1 tokens and all after a rejection count as rejected, so this
    is at most the acceptance rate `alpha`, which only counts positions that were tested. Raises
    ValueError on impossible arguments.
    """
    length = count("length", length, least=1)
    return np.asarray(alpha) * expected_tokens(alpha, length - 1) / length
