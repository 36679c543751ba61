"""Expected tokens of block verification.

Sun et al., "Block Verification Accelerates Speculative Decoding" (2024)
(docs/methods/block_verification.md). Given the first i drafted tokens, at least i are accepted with
probability P_i = min(1, P_{i-1} p(x_i) / q(x_i)), P_0 = 1; so a round gives 1 + sum_i E[P_i] tokens
over drafts from q. Every function raises ValueError on impossible arguments.

Letters: K drafted tokens, V vocabulary, N drafts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count, distribution, non_negative, probability
from specjax.theory.speculative import expected_tokens as one_by_one

MOST_WEIGHTS = 1_000_000
"""Most distinct values of P_i that are computed exactly."""


def acceptance_chances(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """E[P_i] [K], i = 1 ... K: the probability that at least i drafted tokens are accepted.

    Exact, for distributions p and q [K, V] that do not depend on earlier tokens: enumerates every
    value that P_i can take, merging equal ones. If there are too many (a large V at K above 2),
    sample drafts and use `expected_tokens_of_drafts`.
    """
    p, q = np.broadcast_arrays(distribution("p", p), distribution("q", q))
    if p.ndim != 2:
        raise ValueError(f"p and q have shape {p.shape}; it must be [drafted tokens, vocabulary]")
    weights, mass = np.ones(1), np.ones(1)
    means = []
    for own, drafted in zip(p, q, strict=True):
        if len(weights) * len(own) > MOST_WEIGHTS:
            raise ValueError(
                f"{len(weights) * len(own):,} weights follow from {len(means) + 1} drafted tokens;"
                f" they must be at most {MOST_WEIGHTS:,}"
            )
        can = drafted > 0
        ratio = own[can] / drafted[can]
        every = np.minimum(1.0, weights[:, None] * ratio).ravel()
        weights, place = np.unique(every, return_inverse=True)
        mass = np.bincount(place, (mass[:, None] * drafted[can]).ravel(), len(weights))
        means.append(weights @ mass)
    return np.array(means)


def expected_tokens(p: ArrayLike, q: ArrayLike) -> float:
    """Expected tokens of a round, exact; arguments as `acceptance_chances`."""
    return 1.0 + float(acceptance_chances(p, q).sum())


def expected_tokens_of_drafts(ratios: ArrayLike) -> float:
    """Mean over drafts of their expected tokens.

    `ratios` [N, K] are p(x_i) / q(x_i) of tokens drawn from q; both may depend on anything.
    Unbiased if drafts were drawn from q; they may come from a run under another rule.
    """
    ratios = non_negative("ratios", ratios)
    if ratios.ndim != 2 or not len(ratios):
        raise ValueError(f"ratios have shape {ratios.shape}; it must be [drafts, drafted tokens]")
    weight, total = np.ones(len(ratios)), np.ones(len(ratios))
    for ratio in ratios.T:
        weight = np.minimum(1.0, weight * ratio)
        total += weight
    return float(total.mean())


def bounds(alpha: ArrayLike, length: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the expected tokens if alpha is the acceptance after every prefix.

    Alpha does not determine the exact number. With f(w) = sum_x min(q, w p) a longer part has
    E[P_i] = E[f(P_{i-1})], and f is concave from f(0) = 0 to f(1) = alpha with f(w) <= w: so
    alpha^i <= E[P_i] <= alpha. The lower bound is token by token verification.
    """
    alpha, length = probability("alpha", alpha), count("length", length)
    return one_by_one(alpha, length), 1.0 + length * alpha
