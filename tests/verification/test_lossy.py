"""Lossy rules beside lenience: the distribution that each of them gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slow_cases import some_slow

from specjax.contracts.context import Options
from specjax.contracts.distribution import Categorical
from specjax.contracts.draft import Draft
from specjax.contracts.rule import Reading
from specjax.decoding.strategy import strategy
from specjax.sampling import make_sampling
from specjax.verification.speculative_cascade import DEFERRALS, SpeculativeCascade
from specjax.verification.typical import TypicalAcceptance, compute_typical_threshold

P = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
Q = np.array([0.1, 0.45, 0.05, 0.4], np.float32)
BEHIND = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
ROWS = 60_000
ATOL = 0.009
"""Of frequencies of so many draws: the standard error of one is at most 0.002."""


def first_token(rule, numbers, q=Q, p=P, certain=None) -> np.ndarray:
    """How often each token is written first, where q drafted one, or `certain` was."""
    if certain is None:
        tokens = jax.random.choice(jax.random.key(1), 4, (ROWS, 1), p=jnp.asarray(q))
        draft = Draft.chain(tokens, distribution=Categorical(jnp.broadcast_to(q, (ROWS, 1, 4))))
    else:
        draft = Draft.chain(jnp.full((ROWS, 1), certain))
    logits = jnp.log(jnp.broadcast_to(jnp.stack([p, BEHIND]), (ROWS, 2, 4)))
    options = Options(make_sampling(1.0), {name: jnp.float32(x) for name, x in numbers.items()})
    keys = jax.random.split(jax.random.key(2), ROWS)
    verdict = jax.jit(rule.judge)(draft, Reading(logits), options, keys)
    return np.bincount(verdict.tokens[:, 0], minlength=4) / ROWS


def typical(**fields):
    return strategy(drafter="neural", length=1, rule="typical", temperature=1.0, **fields)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 10.0), (0.4, 10.0), (1.0, 0.9)])
def test_typical_acceptance_writes_what_is_drafted_and_likely_else_a_draw_from_p(epsilon, delta):
    entropy = -np.sum(P * np.log(P))
    likely = min(epsilon, delta * np.exp(-entropy)) < P
    assert 0 < likely.sum() < 4
    expected = Q * likely + Q[~likely].sum() * P
    made = first_token(TypicalAcceptance(), {"epsilon": epsilon, "delta": delta})
    np.testing.assert_allclose(made, expected, atol=ATOL)


def test_where_the_target_is_unsure_less_is_enough():
    flat, sharp = np.full(4, 0.25, np.float32), np.array([0.97, 0.01, 0.01, 0.01], np.float32)
    enough = compute_typical_threshold(
        jnp.stack([flat, sharp])[None], jnp.float32(0.9), jnp.float32(0.8)
    )[0]
    np.testing.assert_allclose(enough, [0.8 / 4, 0.8 * np.exp(np.sum(sharp * np.log(sharp)))])
    impossible = jnp.array([[[1.0, 0.0]]])
    assert compute_typical_threshold(
        impossible, jnp.float32(0.5), jnp.float32(0.3)
    ) == pytest.approx(0.3)


def test_greedy_typical_acceptance_is_the_targets_argmax():
    logits = jax.nn.one_hot(jnp.array([[2, 3, 1]] * 2), 5)
    draft = Draft.chain(jnp.array([[2, 0], [2, 3]]))
    numbers = {"epsilon": jnp.float32(0.0), "delta": jnp.float32(0.0)}
    keys = jax.random.split(jax.random.key(0), 2)
    options = Options(make_sampling(0.0), numbers)
    verdict = jax.jit(TypicalAcceptance().judge)(draft, Reading(logits), options, keys)
    assert verdict.accepted.tolist() == [1, 2]
    assert not typical().lossless


def expected_mixture(defer: str, margin: float, q=Q, p=P) -> np.ndarray:
    """docs/methods/speculative_cascade.md, written plainly."""
    distance = np.abs(p - q).sum() / 2
    if defer == "token":
        out = np.zeros(4)
        for token in range(4):
            if p[token] >= (1 - margin) * p.max():
                out[token] += q[token]
            else:
                out += q[token] * p
        return out
    target_decides = {
        "chow": q.max() < 1 - margin,
        "diff": q.max() < p.max() - margin,
        "opt": q.max() < p.max() - margin * distance,
    }[defer]
    return p if target_decides else q


@pytest.mark.parametrize("defer", DEFERRALS)
@pytest.mark.parametrize("margin", some_slow([0.02, 0.3, 0.7], 0.3))
def test_a_cascade_writes_the_mixture_of_its_deferral(defer, margin):
    made = first_token(SpeculativeCascade(defer=defer), {"margin": margin})
    np.testing.assert_allclose(made, expected_mixture(defer, margin), atol=ATOL)


def test_the_margins_of_the_test_above_decide_differently():
    kept = {
        (defer, margin): np.allclose(expected_mixture(defer, margin), Q)
        for defer in DEFERRALS[:3]
        for margin in (0.02, 0.3, 0.7)
    }
    assert [kept["chow", margin] for margin in (0.02, 0.3, 0.7)] == [False, False, True]
    assert [kept["diff", margin] for margin in (0.02, 0.3, 0.7)] == [False, True, True]
    assert [kept["opt", margin] for margin in (0.02, 0.3, 0.7)] == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("defer", DEFERRALS[:3])
def test_equal_distributions_stay_as_they_are(defer):
    made = first_token(SpeculativeCascade(defer=defer), {"margin": 0.3}, q=P)
    np.testing.assert_allclose(made, P, atol=ATOL)


@pytest.mark.slow
def test_a_certain_token_that_is_good_enough_always_stands():
    rule = SpeculativeCascade(defer="token")
    made = first_token(rule, {"margin": 0.5}, certain=1)
    np.testing.assert_allclose(made, [0, 1, 0, 0])
    made = first_token(rule, {"margin": 0.3}, certain=1)
    np.testing.assert_allclose(made, P, atol=ATOL)


def test_behind_the_draft_the_target_decides():
    """Also where the draft is shorter than the widest of its batch."""
    tokens = jnp.zeros((ROWS, 2), jnp.int32)
    q = Categorical(jnp.broadcast_to(jnp.eye(4)[3], (ROWS, 2, 4)))
    draft = Draft.chain(tokens, jnp.zeros((ROWS,), jnp.int32), q)
    p = jnp.broadcast_to(P, (ROWS, 3, 4))
    mixed = SpeculativeCascade(defer="chow").mix(draft, p, jnp.float32(0.5))
    np.testing.assert_allclose(mixed, p)


def test_greedy_cascades_are_refused_in_words():
    with pytest.raises(ValueError, match="needs a temperature above 0; .* rule 'lenient'"):
        strategy(drafter="neural", length=2, rule="speculative_cascade", margin=0.2)
