"""Drafts whose distributions depend on drawn tokens: exact by enumeration, and what breaks that.

Such drafters are corrected left to right: q_k = softmax((U_k + W_2 W_1[x_{k-1}]) / T), as DSpark's
(docs/methods/dflash.md). A rule must be given that distribution, and a draft may end only by what
is known before the token that is cut off.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.distribution import Categorical
from specjax.contracts.draft import Draft
from specjax.verification import block
from specjax.verification.speculative_sampling import compute_residual

V, K, T = 3, 3, 1.6
TEXTS = np.array(list(itertools.product(range(V), repeat=K)))
"""Every draft; a row of the batch each."""
Prefix = tuple[int, ...]
Distributions = Callable[[Prefix], np.ndarray]
ROUNDING = 3e-6
"""Float32 sums of a few products."""

RANDOM = np.random.default_rng(7)
UNARY, FIRST, SECOND = (2.0 * RANDOM.standard_normal(s) for s in ((K, V), (V, 2), (2, V)))
TARGET = {
    prefix: np.exp(1.5 * RANDOM.standard_normal(V))
    for n in range(K + 1)
    for prefix in itertools.product(range(V), repeat=n)
}


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def p(prefix: Prefix) -> np.ndarray:
    """The target's distribution."""
    return TARGET[prefix] / TARGET[prefix].sum()


def bias(prefix: Prefix) -> np.ndarray:
    """What the token before gives; the anchor is token 0."""
    return FIRST[prefix[-1] if prefix else 0] @ SECOND


def correct_law(prefix: Prefix) -> np.ndarray:
    return softmax((UNARY[len(prefix)] + bias(prefix)) / T)


def base(prefix: Prefix) -> np.ndarray:
    return softmax(UNARY[len(prefix)] / T)


def unscaled_bias(prefix: Prefix) -> np.ndarray:
    return softmax(UNARY[len(prefix)] / T + bias(prefix))


def most_probable(prefix: Prefix) -> np.ndarray:
    return np.eye(V)[correct_law(prefix).argmax()]


def two_candidates(prefix: Prefix) -> np.ndarray:
    """The corrected distribution of the two largest unary logits, as of DFlash 2's selector."""
    kept = np.argsort(UNARY[len(prefix)])[-2:]
    rest = np.zeros(V)
    rest[kept] = correct_law(prefix)[kept]
    return rest / rest.sum()


def whole(text: np.ndarray) -> int:
    return K


def before_unsure(text: np.ndarray) -> int:
    """Ends before the first place whose largest probability is small: known before the draw."""
    unsure = (n for n in range(K) if correct_law(tuple(text[:n])).max() < 0.6)
    return next(unsure, K)


def before_improbable(text: np.ndarray) -> int:
    """Ends before the first token that is itself improbable."""
    cut = (n for n in range(K) if correct_law(tuple(text[:n]))[text[n]] < 0.4)
    return next(cut, K)


@dataclasses.dataclass(frozen=True)
class Case:
    """Drafts drawn from one distribution and tested against another, of some length."""

    drawn: Distributions
    tested: Distributions
    length: Callable[[np.ndarray], int] = whole

    @property
    def lengths(self) -> list[int]:
        return [self.length(text) for text in TEXTS]

    def draft(self) -> Draft:
        q = [[self.tested(tuple(text[:n])) for n in range(K)] for text in TEXTS]
        return Draft.chain(
            jnp.asarray(TEXTS, jnp.int32),
            jnp.asarray(self.lengths, jnp.int32),
            Categorical(jnp.asarray(q, jnp.float32)),
        )

    def target(self) -> jax.Array:
        each = [[p(tuple(text[:n])) for n in range(K + 1)] for text in TEXTS]
        return jnp.asarray(each, jnp.float32)

    def chance(self, text: np.ndarray) -> float:
        return float(np.prod([self.drawn(tuple(text[:n]))[text[n]] for n in range(K)]))


Verdicts = tuple[np.ndarray, Callable[[int], np.ndarray]]
"""Chances [27, K + 1] of each number of accepted tokens, and weights [27, V] of the next one."""


def judge_tokens(case: Case) -> Verdicts:
    """Token by token: one is accepted with probability min(1, p / q)."""
    draft, target = case.draft(), case.target()
    at = np.asarray(target)[np.arange(len(TEXTS))[:, None], np.arange(K), TEXTS]
    q = np.asarray(draft.distribution.prob(draft.tokens))
    passes = np.minimum(1.0, np.divide(at, q, out=np.ones_like(at), where=q > 0))
    passes = passes * (np.arange(K) < np.array(case.lengths)[:, None])
    longest = np.cumprod(np.concatenate([np.ones((len(TEXTS), 1)), passes], 1), axis=1)
    stops = 1 - np.concatenate([passes, np.zeros((len(TEXTS), 1))], axis=1)

    def residual(count: int) -> np.ndarray:
        return np.asarray(compute_residual(draft, target, jnp.full((len(TEXTS),), count)))

    return longest * stops, residual


def judge_blocks(case: Case) -> Verdicts:
    """Block verification: the longest prefix that passes."""
    draft, target = case.draft(), case.target()
    weights = block.compute_prefix_weights(draft, target)
    chances = np.asarray(block.compute_acceptance_probs(draft, target, weights), np.float64)
    none_longer = np.cumprod((1 - chances)[:, ::-1], axis=1)[:, ::-1]
    longest = np.concatenate([np.ones((len(chances), 1)), chances], axis=1)

    def residual(count: int) -> np.ndarray:
        rows = jnp.full((len(TEXTS),), count)
        return np.asarray(block.compute_residual(draft, target, weights, rows))

    return longest * np.concatenate([none_longer, np.ones((len(chances), 1))], 1), residual


RULES = {"token": judge_tokens, "block": judge_blocks}


def error(case: Case, rule: str) -> float:
    """The total variation between K + 1 written tokens and the target's."""
    shares, residual = RULES[rule](case)
    made = dict.fromkeys(itertools.product(range(V), repeat=K + 1), 0.0)
    for count in range(K + 1):
        own = residual(count).astype(np.float64)
        own /= own.sum(axis=1, keepdims=True)
        for row, text in enumerate(TEXTS):
            chance = case.chance(text) * shares[row, count]
            if count > case.lengths[row] or not chance:
                continue
            for end in itertools.product(range(V), repeat=K + 1 - count):
                written = (*text[:count].tolist(), *end)
                rest = [p(written[:n])[written[n]] for n in range(count + 1, K + 1)]
                made[written] += chance * own[row, end[0]] * np.prod(rest)
    exact = {text: np.prod([p(text[:n])[text[n]] for n in range(K + 1)]) for text in made}
    return sum(abs(made[text] - exact[text]) for text in made) / 2


EXACT = {
    "conditional": Case(correct_law, correct_law),
    "greedy as one-hot": Case(most_probable, most_probable),
    "two candidates": Case(two_candidates, two_candidates),
    "ends before an unsure place": Case(correct_law, correct_law, before_unsure),
}
WRONG = {
    "base distribution": Case(correct_law, base),
    "softmax for a greedy draft": Case(most_probable, correct_law),
    "bias without temperature": Case(correct_law, unscaled_bias),
    "dense for two candidates": Case(two_candidates, correct_law),
    "ends before an improbable token": Case(correct_law, correct_law, before_improbable),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", EXACT)
def test_the_targets_distribution_is_written(name: str, rule: str) -> None:
    assert error(EXACT[name], rule) < ROUNDING


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_distribution_or_length_is_not_exact(name: str, rule: str) -> None:
    assert error(WRONG[name], rule) > 0.01


def test_the_cases_are_different() -> None:
    """The stops cut some drafts and leave others whole, and candidates drop a token."""
    for stop in (before_unsure, before_improbable):
        assert len({stop(text) for text in TEXTS}) > 1
    assert all(
        np.count_nonzero(two_candidates(tuple(text[:n]))) == 2 for text in TEXTS for n in (0, 1)
    )
