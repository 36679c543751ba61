"""Block verification: the target's distribution by enumeration, and no fewer tokens."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.distribution import Categorical
from specjax.contracts.draft import Draft
from specjax.verification import block
from specjax.verification.speculative_sampling import compute_residual as token_residual
from specjax.verification.speculative_sampling import match_by_sampling

V, K = 3, 3
TEXTS = np.array(list(itertools.product(range(V), repeat=K)))
"""Every draft; a row of the batch each."""


def exact_distribution(seed: int, spread: float = 1.5) -> dict[tuple[int, ...], np.ndarray]:
    """A distribution of the next token behind every prefix."""
    random = np.random.default_rng(seed)
    prefixes = (p for n in range(K + 1) for p in itertools.product(range(V), repeat=n))
    logits = {prefix: spread * random.standard_normal(V) for prefix in prefixes}
    return {prefix: np.exp(x) / np.exp(x).sum() for prefix, x in logits.items()}


def along(distribution: dict[tuple[int, ...], np.ndarray], count: int) -> np.ndarray:
    """The distributions [27, count, V] along every draft."""
    return np.stack([[distribution[tuple(text[:n])] for n in range(count)] for text in TEXTS])


def chance(distribution: dict[tuple[int, ...], np.ndarray], text: tuple[int, ...]) -> float:
    """Of a text whose distributions `law` gives."""
    return float(np.prod([distribution[text[:n]][token] for n, token in enumerate(text)]))


@dataclasses.dataclass(frozen=True)
class Case:
    """Drafts from q against p; a draft ends early behind a token of `last`."""

    p: dict[tuple[int, ...], np.ndarray]
    q: dict[tuple[int, ...], np.ndarray]
    last: tuple[int, ...] = ()

    def length(self, text: np.ndarray) -> int:
        ends = (n for n, token in enumerate(text, start=1) if token in self.last)
        return next(ends, K)

    def draft(self) -> Draft:
        lengths = [self.length(text) for text in TEXTS]
        return Draft.chain(
            jnp.asarray(TEXTS, jnp.int32),
            jnp.asarray(lengths, jnp.int32),
            Categorical(jnp.asarray(along(self.q, K), jnp.float32)),
        )

    def target(self) -> jax.Array:
        return jnp.asarray(along(self.p, K + 1), jnp.float32)


def accepted_chances(chances: np.ndarray) -> np.ndarray:
    """Of 0 ... K accepted tokens [27, K+1]: the longest part that stands, tests independent."""
    none_longer = np.cumprod((1 - chances)[:, ::-1], axis=1)[:, ::-1]
    longest = np.concatenate([np.ones((len(chances), 1)), chances], axis=1)
    return longest * np.concatenate([none_longer, np.ones((len(chances), 1))], axis=1)


def compute_law(
    case: Case, chances: np.ndarray, weights: np.ndarray
) -> dict[tuple[int, ...], float]:
    """The law of texts of K + 1 tokens; what follows the rule's own token is the target's."""
    draft, p = case.draft(), case.target()
    made = dict.fromkeys(itertools.product(range(V), repeat=K + 1), 0.0)
    shares = accepted_chances(chances)
    for count in range(K + 1):
        rows = jnp.full((len(TEXTS),), count)
        own = np.asarray(
            jax.jit(block.compute_residual)(draft, p, jnp.asarray(weights), rows), np.float64
        )
        own /= own.sum(axis=1, keepdims=True)
        for row, text in enumerate(TEXTS):
            if count > case.length(text):
                continue
            drafted = chance(case.q, tuple(text)) * shares[row, count]
            for token in range(V):
                begun = (*text[:count], token)
                for end in itertools.product(range(V), repeat=K - count):
                    whole = begun + end
                    rest = np.prod([case.p[whole[:n]][whole[n]] for n in range(count + 1, K + 1)])
                    made[whole] += drafted * own[row, token] * rest
    return made


def of_rule(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The rule's own numbers."""
    draft, p = case.draft(), case.target()
    weights = jax.jit(block.compute_prefix_weights)(draft, p)
    return np.asarray(
        jax.jit(block.compute_acceptance_probs)(draft, p, weights), np.float64
    ), np.asarray(weights)


def distance(case: Case, chances: np.ndarray, weights: np.ndarray) -> float:
    """The largest error of a text's probability."""
    made = compute_law(case, chances, weights)
    return max(abs(made[text] - chance(case.p, text)) for text in made)


CASES = {
    "near": Case(exact_distribution(1), exact_distribution(2, 0.5)),
    "far": Case(exact_distribution(3, 3.0), exact_distribution(4, 3.0)),
    "the same": Case(exact_distribution(5), exact_distribution(5)),
    "ending early": Case(exact_distribution(6), exact_distribution(7), last=(1,)),
}
ROUNDING = 2e-6
"""Float32 sums of a few products."""


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_has_the_targets_distribution(name):
    assert distance(CASES[name], *of_rule(CASES[name])) < ROUNDING


def sure(seed: int, digits: int) -> dict[tuple[int, ...], np.ndarray]:
    """Distributions that are certain of a token up to 10^-digits, of each prefix its own."""
    made = {}
    for place, (prefix, own) in enumerate(exact_distribution(seed).items()):
        made[prefix] = own * 10.0**-digits
        made[prefix][(place + seed) % V] += 1.0 - 10.0**-digits
    return made


@pytest.mark.parametrize(
    "digits", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 9)), 12]
)
@pytest.mark.parametrize("target", ["flat", "as sure", "less sure", "sure of others"])
def test_certain_drafters_leave_it_too(target, digits):
    p = {
        "flat": exact_distribution(1),
        "as sure": sure(5, digits),
        "less sure": sure(8, digits - 2),
        "sure of others": sure(3, digits),
    }
    case = Case(p[target], sure(2, digits))
    assert distance(case, *of_rule(case)) < ROUNDING


@pytest.mark.parametrize("name", ["near", "far", "ending early"])
def test_wrong_chances_do_not(name):
    chances, weights = of_rule(CASES[name])
    assert distance(CASES[name], weights[:, 1:].astype(np.float64), weights) > 1e-3
    assert distance(CASES[name], np.roll(chances, 1, axis=1), weights) > 1e-3


def test_a_residual_that_forgets_the_weight_of_the_prefix_does_not():
    chances, weights = of_rule(CASES["near"])
    assert distance(CASES["near"], chances, np.ones_like(weights)) > 1e-3


@pytest.mark.parametrize("name", ["near", "far", "ending early"])
def test_more_tokens_stand_than_one_by_one(name):
    case = CASES[name]
    q = np.array([chance(case.q, tuple(text)) for text in TEXTS])
    lengths = np.array([case.length(text) for text in TEXTS])
    blockwise = accepted_chances(of_rule(case)[0]) @ np.arange(K + 1)
    ratio = along(case.p, K) / along(case.q, K)
    passes = np.minimum(1, np.take_along_axis(ratio, TEXTS[..., None], axis=2)[..., 0])
    inside = np.arange(K) < lengths[:, None]
    one_by_one = np.sum(np.cumprod(passes, axis=1) * inside, axis=1)
    assert q @ blockwise > q @ one_by_one + 1e-3


@pytest.mark.slow
def test_the_drawn_verdicts_are_as_often_as_the_chances_say():
    case, rows = CASES["near"], 200_000
    drawn = jax.random.randint(jax.random.key(0), (rows,), 0, len(TEXTS))
    draft = jax.tree.map(lambda x: x[drawn], case.draft())
    keys = jax.random.split(jax.random.key(1), rows)
    verdict = jax.jit(block.verify_block)(draft, case.target()[drawn], keys)
    expected = accepted_chances(of_rule(case)[0]).mean(axis=0)
    counted = np.bincount(verdict.accepted, minlength=K + 1) / rows
    np.testing.assert_allclose(counted, expected, atol=0.006)  # five standard errors


@pytest.mark.slow
def test_certain_tokens_stand_as_often_as_one_by_one():
    """The longest part of a certain draft stands with the product of the target's chances."""
    case, rows = CASES["near"], 100_000
    tokens = jnp.zeros((rows, K), jnp.int32)
    p = jnp.broadcast_to(case.target()[0], (rows, K + 1, V))
    keys = jax.random.split(jax.random.key(2), rows)
    draft = Draft.chain(tokens)
    together = np.bincount(jax.jit(block.verify_block)(draft, p, keys).accepted, minlength=K + 1)
    baseline = np.bincount(
        jax.jit(match_by_sampling)(draft, p, 1.0, keys).accepted, minlength=K + 1
    )
    np.testing.assert_allclose(together / rows, baseline / rows, atol=0.011)


def test_an_empty_draft_leaves_the_targets_own_token():
    p = jnp.full((4, 1, V), 1 / V)
    draft = Draft.chain(jnp.zeros((4, 0), jnp.int32))
    verdict = jax.jit(block.verify_block)(draft, p, jax.random.split(jax.random.key(0), 4))
    assert verdict.accepted.tolist() == [0] * 4 and verdict.count.tolist() == [1] * 4


def test_the_first_residual_is_that_of_speculative_sampling():
    draft, p = CASES["far"].draft(), CASES["far"].target()
    weights, none = block.compute_prefix_weights(draft, p), jnp.zeros((len(TEXTS),), jnp.int32)
    first = block.compute_residual(draft, p, weights, none)
    np.testing.assert_allclose(first, token_residual(draft, p, none), atol=1e-7)
