"""The rollback rule on hand-made laws: every distance, thresholds, the token that follows."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.context import Options
from specjax.contracts.distribution import pick
from specjax.contracts.draft import Draft
from specjax.contracts.rule import Reading
from specjax.sampling import make_sampling
from specjax.verification.distances import DISTANCES, LOGITS
from specjax.verification.oracle import Oracle
from specjax.verification.rollback import OFFICIAL, Rollback

P = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
Q = np.array([0.1, 0.3, 0.1, 0.5], np.float32)
BY_HAND = {
    "cross_entropy": [-math.log(p) for p in P],
    "kl": [sum(q * math.log(q / p) for p, q in zip(P, Q, strict=True))] * 4,
    "total_variation": [0.45] * 4,  # (0.4 + 0 + 0.05 + 0.45) / 2
    "rank": [0, 1, 2, 3],
}


def draft(tokens, proposer=None, length=None) -> Draft:
    tokens = jnp.asarray(tokens, jnp.int32)
    batch, width = tokens.shape
    logits = None if proposer is None else jnp.broadcast_to(jnp.log(proposer), (batch, width, 4))
    length = None if length is None else jnp.asarray(length)
    return Draft.chain(tokens, length, aux=None if logits is None else {LOGITS: logits})


def laws(batch: int, width: int) -> jax.Array:
    return jnp.broadcast_to(jnp.log(P) + 3.0, (batch, width, 4))  # logits need no normalizer


def own_token(verdict) -> list[int]:
    """The token [B] behind the accepted ones."""
    return pick(verdict.tokens, verdict.accepted).tolist()


def keys(rows: int) -> jax.Array:
    return jax.random.split(jax.random.key(1), rows)


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_those_worked_out_by_hand(name):
    found = DISTANCES[name](draft([[0, 1, 2, 3]], Q), laws(1, 4))
    np.testing.assert_allclose(found[0], BY_HAND[name], rtol=1e-5)


def test_impossible_tokens_are_finitely_or_infinitely_far_but_never_undefined():
    certain = jnp.log(jnp.array([[[1.0, 0.0, 0.0, 0.0]]]))
    wrong = draft([[1]], np.array([0.0, 1.0, 0.0, 0.0]))
    found = {name: float(DISTANCES[name](wrong, certain)[0, 0]) for name in DISTANCES}
    assert found == {"cross_entropy": math.inf, "kl": math.inf, "total_variation": 1.0, "rank": 1.0}
    right = draft([[0]], np.array([1.0, 0.0, 0.0, 0.0]))
    assert [float(DISTANCES[name](right, certain)[0, 0]) for name in DISTANCES] == [0.0] * 4


def test_ties_are_ranked_as_the_argmax_breaks_them():
    flat = jnp.zeros((1, 4, 4))
    assert DISTANCES["rank"](draft([[0, 1, 2, 3]]), flat)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["kl", "total_variation"])
def test_a_distance_of_laws_needs_the_proposers(name):
    with pytest.raises(ValueError, match="Draft.aux has no logits"):
        DISTANCES[name](draft([[0]]), laws(1, 1))


def verdict(rule, tokens, threshold: float, **fields):
    options = Options(make_sampling(0.0), {"rollback": jnp.float32(threshold), "engage": threshold})
    made = draft(tokens, **fields)
    reading = Reading(laws(len(tokens), len(tokens[0]) + 1))
    return jax.jit(rule.judge)(made, reading, options, keys(len(tokens)))


@pytest.mark.parametrize(
    ("threshold", "accepted"),
    # -log p of tokens 1, 2, 3: 1.204, 1.897, 2.996
    [(0.0, 0), (1.2, 0), (1.21, 1), (1.9, 2), (3.0, 3), (math.inf, 3)],
)
def test_the_first_token_beyond_the_threshold_goes_with_all_behind_it(threshold, accepted):
    found = verdict(Rollback(), [[1, 2, 3]], threshold)
    assert found.accepted.tolist() == [accepted] and own_token(found) == [0]
    assert verdict(Rollback(), [[1, 3, 1]], threshold).accepted.tolist() == [
        min(accepted, 1) if threshold < 3 else 3
    ]


def test_tokens_behind_the_draft_are_not_judged():
    assert verdict(Rollback(), [[1, 3]], 2.0, length=[1]).accepted.tolist() == [1]
    assert verdict(Rollback(), [[3, 3]], 2.0, length=[0]).accepted.tolist() == [0]


def test_the_targets_own_choice_stands_at_any_threshold_unless_told_otherwise():
    tokens = [[0, 0, 3], [0, 3, 0], [3, 0, 0]]
    assert verdict(Rollback(), tokens, 0.0).accepted.tolist() == [2, 1, 0]
    assert verdict(Rollback(equal_argmax=False), tokens, 0.0).accepted.tolist() == [0, 0, 0]
    # The published code looks at the first one only, and lets all stand with it.
    assert verdict(Rollback(compat=OFFICIAL), tokens, 0.0).accepted.tolist() == [3, 3, 0]


def test_sampling_draws_from_the_adjusted_law_the_dropped_token_included():
    rows = 20_000
    options = Options(make_sampling(1.0, top_p=0.7), {"rollback": jnp.float32(0.1)})
    found = jax.jit(Rollback().judge)(
        draft([[1]] * rows), Reading(laws(rows, 2)), options, keys(rows)
    )
    # Token 1 is dropped (1.2 nats on the plain law) and may be drawn again; the nucleus is {0, 1}.
    assert int(found.accepted.sum()) == 0
    distribution = np.bincount(own_token(found), minlength=4) / rows
    np.testing.assert_allclose(
        distribution, [0.625, 0.375, 0, 0], atol=0.015
    )  # four standard errors


def test_sampling_judges_by_the_plain_law_and_drops_the_argmax_too():
    options = Options(make_sampling(1.0, top_p=0.4), {"rollback": jnp.float32(2.0)})
    # Outside the nucleus {0}, at 1.897 nats on the plain law: stands.
    reading = Reading(laws(1, 2))
    assert jax.jit(Rollback().judge)(draft([[2]]), reading, options, keys(1)).accepted.tolist() == [
        1
    ]
    strict = Options(make_sampling(1.0), {"rollback": jnp.float32(0.5)})
    assert jax.jit(Rollback().judge)(draft([[0]]), reading, strict, keys(1)).accepted.tolist() == [
        0
    ]


@pytest.mark.parametrize(("level", "accepted"), [(0.0, 1), (0.29, 1), (0.31, 0), (1.5, 0)])
def test_the_oracle_adds_a_token_only_in_place_of_one(level, accepted):
    found = verdict(Oracle(), [[1]], level)
    assert found.accepted.tolist() == [accepted] and (found.count - found.accepted).tolist() == [
        1 - accepted
    ]
    assert verdict(Oracle(), [[1]], level, length=[0]).count.tolist() == [1]
