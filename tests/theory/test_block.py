"""Block verification's expected tokens: published ones, enumeration by the rule, bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specjax.theory import block, speculative

V, K = 3, 3
TEXTS = np.array(list(itertools.product(range(V), repeat=K)))


def laws(seed: int, spread: float = 1.0) -> np.ndarray:
    """Distributions [27, K, V] along every draft: of its first tokens, the same for the same."""
    random = np.random.default_rng(seed)
    logits = {
        prefix: spread * random.standard_normal(V)
        for length in range(K)
        for prefix in itertools.product(range(V), repeat=length)
    }
    along = [[logits[tuple(text[:place])] for place in range(K)] for text in TEXTS]
    chances = np.exp(along)
    return chances / chances.sum(axis=-1, keepdims=True)


def of_texts(distribution: np.ndarray) -> np.ndarray:
    """Probabilities [27, K] of the drafts' tokens."""
    return np.take_along_axis(distribution, TEXTS[..., None], axis=2)[..., 0]


def accepted_by_the_rule(p: np.ndarray, q: np.ndarray) -> float:
    """Mean accepted tokens from the rule's own tests h_i of every part, the longest first."""
    ratio = of_texts(p) / of_texts(q)
    weight, none_longer = np.ones((len(TEXTS), K + 1)), np.ones(len(TEXTS))
    for place in range(K):
        weight[:, place + 1] = np.minimum(1.0, weight[:, place] * ratio[:, place])
    accepted = np.zeros(len(TEXTS))
    for length in range(K, 0, -1):
        own = weight[:, length]
        chance = own
        if length < K:
            rest = np.maximum(own[:, None] * p[:, length] - q[:, length], 0.0).sum(axis=1)
            chance = rest / (rest + 1.0 - own)
        accepted += length * chance * none_longer
        none_longer *= 1.0 - chance
    return float(of_texts(q).prod(axis=1) @ accepted)


def test_the_paper_s_example():
    p, q = np.tile([1 / 3, 2 / 3], (2, 1)), np.tile([2 / 3, 1 / 3], (2, 1))
    assert block.expected_tokens(p, q) == pytest.approx(1 + 11 / 9)
    assert speculative.expected_tokens(2 / 3, 2) == pytest.approx(1 + 10 / 9)


def test_laws_by_position_are_followed_exactly():
    random = np.random.default_rng(0)
    p, q = random.dirichlet(np.ones(V), (2, K))
    whole = (np.broadcast_to(distribution, (len(TEXTS), K, V)) for distribution in (p, q))
    assert block.expected_tokens(p, q) == pytest.approx(1 + accepted_by_the_rule(*whole))
    assert block.acceptance_chances(p, q)[0] == pytest.approx(
        float(speculative.overlap(p[0], q[0]))
    )
    # A token that is never drafted is none of it.
    q = np.array([[0.5, 0.5, 0.0]] * K)
    whole = (np.broadcast_to(distribution, (len(TEXTS), K, V)) for distribution in (p, q + 1e-12))
    assert block.expected_tokens(p, q) == pytest.approx(1 + accepted_by_the_rule(*whole))


def test_drafts_tell_what_laws_that_depend_on_them_give():
    p, q = laws(1), np.full((len(TEXTS), K, V), 1 / V)  # every draft is as likely
    found = block.expected_tokens_of_drafts(of_texts(p) / of_texts(q))
    assert found == pytest.approx(1 + accepted_by_the_rule(p, q))
    one_by_one = np.cumprod(np.minimum(1, of_texts(p) / of_texts(q)), axis=1).sum(axis=1).mean()
    assert found > 1 + one_by_one


def test_drawn_drafts_agree_with_the_exact_number():
    random = np.random.default_rng(2)
    p, q = random.dirichlet(np.ones(4), (2, 5))
    drawn = np.stack([random.choice(4, 40_000, p=distribution) for distribution in q], axis=1)
    places = np.arange(5)
    ratios = p[places, drawn] / q[places, drawn]
    assert block.expected_tokens_of_drafts(ratios) == pytest.approx(
        block.expected_tokens(p, q), rel=0.01
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_bounds_hold(seed):
    random = np.random.default_rng(seed)
    p, q = (np.tile(distribution, (6, 1)) for distribution in random.dirichlet(np.ones(V), 2))
    low, high = block.bounds(speculative.overlap(p, q)[0], 6)
    assert low <= block.expected_tokens(p, q) <= high
    same = block.expected_tokens(p, p)
    assert same == pytest.approx(7.0) and block.bounds(1.0, 6) == (7.0, 7.0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: block.acceptance_chances([0.5, 0.5], [0.5, 0.5]),
            r"shape \(2,\); it must be \[drafted",
        ),
        (lambda: block.expected_tokens_of_drafts([1.0]), r"shape \(1,\); it must be \[drafts"),
        (lambda: block.acceptance_chances(*np.full((2, 3, 1100), 1 / 1100)), "must be at most"),
    ],
)
def test_impossible_arguments_are_refused(call, said, monkeypatch):
    monkeypatch.setattr(block, "MOST_WEIGHTS", 1000)
    with pytest.raises(ValueError, match=said):
        call()
