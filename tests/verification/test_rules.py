"""Rules on hand-made drafts: exact numbers, the lenience bound, and argmax lenience."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.context import Options
from specjax.contracts.distribution import Categorical, pick
from specjax.contracts.draft import Draft
from specjax.contracts.rule import Reading
from specjax.sampling import make_sampling
from specjax.verification.lenient import (
    SCORE,
    Lenient,
    compute_induced_distribution,
    is_near_best,
    is_near_proposer,
    match_leniently,
)
from specjax.verification.speculative_sampling import (
    SpeculativeSampling,
    compute_residual,
    match_by_sampling,
    match_greedily,
)

P = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
Q = np.array([0.1, 0.3, 0.1, 0.5], np.float32)
ROWS = 60_000


def draft(tokens, probs=None, length=None, score=None) -> Draft:
    return Draft.chain(
        jnp.asarray(tokens, jnp.int32),
        None if length is None else jnp.asarray(length),
        None if probs is None else Categorical(probs),
        aux=None if score is None else {SCORE: score},
    )


def own_token(verdict) -> jax.Array:
    """The token [B] behind the accepted ones."""
    return pick(verdict.tokens, verdict.accepted)


def keys(seed: int, rows: int = ROWS) -> jax.Array:
    return jax.random.split(jax.random.key(seed), rows)


def one_token_distribution(lenience: float, stochastic: bool) -> np.ndarray:
    """Empirical law of the first emitted token for draft law Q and target law P."""
    tokens = jax.random.choice(jax.random.key(1), 4, (ROWS, 1), p=jnp.asarray(Q))
    if not stochastic:
        tokens = jnp.full((ROWS, 1), 3)
    probs = jnp.broadcast_to(Q, (ROWS, 1, 4)) if stochastic else None
    p = jnp.broadcast_to(P, (ROWS, 2, 4))
    made = draft(tokens, probs)
    verdict = jax.jit(match_by_sampling)(made, p, jnp.float32(lenience), keys(2))
    return np.bincount(verdict.tokens[:, 0], minlength=4) / ROWS


def lenient_distribution(q: np.ndarray, lenience: float) -> np.ndarray:
    """docs/methods/lenience.md: min(q, p/l) + (1 - alpha_l) norm([p - q]_+)."""
    kept = np.minimum(P / lenience, q)
    rest = np.maximum(P - q, 0)
    return kept + (1 - kept.sum()) * rest / rest.sum()


@pytest.mark.parametrize("stochastic", [True, False])
@pytest.mark.parametrize("lenience", [1.0, 0.5, 0.1])
def test_emitted_law_under_lenience_is_the_formula(lenience, stochastic):
    q = Q if stochastic else np.eye(4, dtype=np.float32)[3]
    distribution = one_token_distribution(lenience, stochastic)
    # 60,000 draws: the standard error of a cell is at most 0.002
    np.testing.assert_allclose(distribution, lenient_distribution(q, lenience), atol=0.009)


@pytest.mark.slow
@pytest.mark.parametrize("lenience", [0.7, 0.4, 0.1])
def test_lenient_law_is_bounded_by_p_over_l_and_its_distance_is_alpha_l_minus_beta(lenience):
    distribution = one_token_distribution(lenience, True)
    assert np.all(distribution <= P / lenience + 0.009)
    alpha, beta = np.minimum(P / lenience, Q).sum(), np.minimum(P, Q).sum()
    assert abs(np.abs(distribution - P).sum() / 2 - (alpha - beta)) < 0.009


def test_residual_falls_back_to_p_when_draft_and_target_agree():
    probs = jnp.broadcast_to(P, (1, 1, 4))
    made = draft([[0]], probs)
    weights = compute_residual(made, jnp.broadcast_to(P, (1, 2, 4)), jnp.array([0]))
    np.testing.assert_allclose(weights[0], P)


def test_a_token_of_probability_zero_never_stands():
    p = jnp.broadcast_to(jnp.array([1.0, 0.0]), (2000, 2, 2))
    made = draft(jnp.ones((2000, 1)), jnp.broadcast_to(jnp.array([0.0, 1.0]), (2000, 1, 2)))
    verdict = jax.jit(match_by_sampling)(made, p, 1e-6, keys(3, 2000))
    assert int(verdict.accepted.sum()) == 0
    assert int(own_token(verdict).sum()) == 0


def test_a_draft_no_more_likely_than_the_target_always_stands():
    p = jnp.broadcast_to(jnp.array([0.6, 0.4]), (2000, 2, 2))
    made = draft(jnp.zeros((2000, 1)), jnp.broadcast_to(jnp.array([0.6, 0.4]), (2000, 1, 2)))
    assert int(jax.jit(match_by_sampling)(made, p, 1.0, keys(4, 2000)).accepted.sum()) == 2000


def test_overlap_sums_min_p_q_over_tested_positions():
    probs = jnp.broadcast_to(Q, (1, 2, 4))
    p = jnp.broadcast_to(P, (1, 3, 4))
    verdict = jax.jit(match_by_sampling)(draft([[1, 1]], probs), p, 1.0, keys(5, 1))
    assert int(verdict.accepted[0]) == 2
    np.testing.assert_allclose(verdict.overlap[0], 2 * np.minimum(P, Q).sum(), rtol=1e-6)


def test_greedy_match_counts_the_leading_agreement():
    logits = jax.nn.one_hot(jnp.array([[2, 3, 1, 0]] * 3), 5)
    verdict = jax.jit(match_greedily)(draft([[2, 3, 1], [2, 0, 1], [4, 3, 1]]), logits)
    assert verdict.accepted.tolist() == [3, 1, 0]
    assert own_token(verdict).tolist() == [0, 3, 2]


def test_drafts_beyond_the_length_are_ignored():
    logits = jax.nn.one_hot(jnp.array([[2, 3, 1, 0]]), 5)
    verdict = jax.jit(match_greedily)(draft([[2, 3, 1]], length=[1]), logits)
    assert (int(verdict.accepted[0]), int(own_token(verdict)[0])) == (1, 3)


@pytest.mark.parametrize(("lenience", "accepted"), [(1.0, 0), (0.51, 0), (0.49, 1), (0.05, 2)])
def test_argmax_lenience_accepts_from_that_fraction_of_the_best(lenience, accepted):
    logits = jnp.log(jnp.array([[[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]]))
    made = draft([[1, 2]])
    verdict = match_leniently(
        made, logits, is_near_best(made, logits[:, :-1], jnp.float32(lenience))
    )
    assert int(verdict.accepted[0]) == accepted
    assert int(own_token(verdict)[0]) == [0, 1, 2][accepted]


def test_lenience_one_is_the_strict_rule():
    logits = jax.random.normal(jax.random.key(0), (500, 4, 6))
    made = draft(jax.random.randint(jax.random.key(1), (500, 3), 0, 6))
    options = Options(make_sampling(0.0), {"lenience": jnp.float32(1.0)})
    strict = jax.jit(SpeculativeSampling().judge)(made, Reading(logits), options, keys(0, 500))
    lenient = jax.jit(Lenient().judge)(made, Reading(logits), options, keys(0, 500))
    assert strict.accepted.tolist() == lenient.accepted.tolist()
    assert own_token(strict).tolist() == own_token(lenient).tolist()


@pytest.mark.parametrize("stochastic", [True, False])
@pytest.mark.parametrize("lenience", [1.0, 0.4])
def test_the_induced_law_is_the_formula_where_a_token_was_drafted(lenience, stochastic):
    q = Q if stochastic else np.eye(4, dtype=np.float32)[3]
    probs = jnp.broadcast_to(Q, (1, 3, 4)) if stochastic else None
    made = draft([[3, 3, 3]], probs, length=[2])
    p = jnp.broadcast_to(P, (1, 4, 4))
    distribution = np.asarray(compute_induced_distribution(made, p, jnp.full((1, 3), lenience)))[0]
    expected = lenient_distribution(q, lenience)
    np.testing.assert_allclose(distribution, [expected, expected, P, P], atol=1e-6)


def test_lenience_relative_to_the_proposer_needs_its_score():
    logits = jnp.log(jnp.array([[[0.6, 0.3, 0.1]] * 4]))
    scores = jnp.array([[0.5, 0.61, jnp.inf]])  # 0.3 > 0.5 q: yes, no, never
    made = draft([[1, 1, 1]], score=scores)
    near = is_near_proposer(made, logits[:, :-1], jnp.float32(0.5))
    assert near.tolist() == [[True, False, False]]
    unscored = draft([[1, 1, 1]])
    assert not is_near_proposer(unscored, logits[:, :-1], jnp.float32(0.01)).any()


@pytest.mark.slow
def test_drafts_without_a_score_are_sampled_without_lenience():
    logits = jax.random.normal(jax.random.key(0), (500, 3, 6))
    tokens = jax.random.randint(jax.random.key(1), (500, 2), 0, 6)
    options = Options(make_sampling(1.0), {"lenience": jnp.float32(0.01)})

    def judge_drafts(rule, score=None):
        made, reading = draft(tokens, score=score), Reading(logits)
        verdict = jax.jit(rule.judge)(made, reading, options, keys(0, 500))
        return verdict.accepted.tolist(), rule.distribution(made, reading, options).probs

    strict, distribution = judge_drafts(SpeculativeSampling())
    relative, relative_law = judge_drafts(Lenient(relative=True))
    assert strict == relative
    np.testing.assert_allclose(distribution, relative_law, atol=1e-6)
    scored, _ = judge_drafts(Lenient(relative=True), jnp.full((500, 2), 0.1))
    assert scored == judge_drafts(Lenient())[0]
    assert scored != strict
