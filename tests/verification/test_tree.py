"""Trees: what is written has the target's distribution, whatever children were drawn from."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.distribution import (
    Categorical,
    OneHot,
    WithoutReplacement,
    draw_without_replacement,
    pick_tokens,
)
from specjax.contracts.draft import Draft
from specjax.verification.tree import match_tree_by_sampling, match_tree_greedily

V = 5
P = np.array([0.35, 0.3, 0.2, 0.1, 0.05], np.float32)
Q = np.array([0.1, 0.15, 0.3, 0.25, 0.2], np.float32)
PAIRS = np.array(list(itertools.product(range(V), repeat=2)))
ROUNDING = 1e-6


def siblings(tokens: np.ndarray, distribution) -> Draft:
    """Both tokens of each row hang on the pending one."""
    draft = Draft.chain(jnp.asarray(tokens, jnp.int32), distribution=distribution)
    return draft.replace(parents=jnp.full(tokens.shape, -1))


def rows(values: np.ndarray, count: int) -> jax.Array:
    return jnp.broadcast_to(values, (len(PAIRS), count, V))


def independent() -> tuple[Draft, np.ndarray]:
    """Every pair of draws, and how likely it is."""
    return siblings(PAIRS, Categorical(rows(Q, 2))), Q[PAIRS[:, 0]] * Q[PAIRS[:, 1]]


def without_replacement() -> tuple[Draft, np.ndarray]:
    drawn = jnp.asarray(PAIRS[:, None], jnp.int32)
    distribution = WithoutReplacement.from_draws(rows(Q, 1), drawn, levels=(0, 0), ranks=(0, 1))
    first, second = PAIRS.T
    chance = np.where(first == second, 0.0, Q[first] * Q[second] / (1 - Q[first]))
    return siblings(PAIRS, distribution), chance


def certain() -> tuple[Draft, np.ndarray]:
    """The two likeliest tokens of q, always."""
    tokens = np.broadcast_to([2, 3], (len(PAIRS), 2))
    chance = np.zeros(len(PAIRS))
    chance[0] = 1.0
    return siblings(tokens, OneHot(jnp.asarray(tokens))), chance


KINDS = {
    "independent": independent, "without replacement": without_replacement, "certain": certain
}  # fmt: skip
STEPS = 240
"""Values of a child's uniform number."""


def outcome(draft: Draft, chance: np.ndarray) -> tuple[np.ndarray, float]:
    """The law of the first token written and how often a child stands, over all random numbers.

    Those are taken from a grid: an edge between standing and falling is half a step off at most.
    """
    grid = (np.arange(STEPS) + 0.5) / STEPS
    distribution, stood = np.zeros(V), 0.0
    target = jnp.broadcast_to(P, (STEPS * STEPS, 3, V))
    accept = jnp.asarray(np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2), jnp.float32)
    judge = jax.jit(lambda d: _weights(d, target, accept))
    for row in np.flatnonzero(chance > 0):
        one = jax.tree.map(lambda x, row=row: jnp.repeat(x[row : row + 1], len(accept), 0), draft)
        accepted, token, own = map(np.asarray, judge(one))
        stands = accepted > 0
        distribution += chance[row] * np.bincount(token[stands], minlength=V) / len(accept)
        distribution += chance[row] * own[~stands].sum(axis=0) / len(accept)
        stood += chance[row] * stands.mean()
    return distribution, stood


def _weights(draft: Draft, p: jax.Array, accept: jax.Array):
    """What stood, and the law that the rule's own token is drawn from."""
    distributions = []

    def note(keys, distribution):
        distributions.append(distribution / jnp.sum(distribution, axis=-1, keepdims=True))
        return jnp.zeros(distribution.shape[:1], jnp.int32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specjax.verification.tree.draw", note)
        verdict = match_tree_by_sampling(
            draft, p, accept, jax.random.split(jax.random.key(0), len(p))
        )
    return verdict.accepted, verdict.tokens[:, 0], distributions[0]


@functools.cache
def make_outcome(kind: str) -> tuple[np.ndarray, float]:
    return outcome(*KINDS[kind]())


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_token_has_the_targets_distribution(kind):
    distribution, _ = make_outcome(kind)
    np.testing.assert_allclose(distribution, P, atol=1 / STEPS)


@pytest.mark.slow
def test_wrong_distributions_of_children_do_not_keep_it():
    draft, chance = without_replacement()
    as_if_independent = draft.replace(distribution=Categorical(rows(Q, 2)))
    distribution, _ = outcome(as_if_independent, chance)
    assert np.abs(distribution - P).max() > 2 / STEPS
    draft, chance = independent()
    exchanged = draft.replace(distribution=Categorical(rows(Q[::-1].copy(), 2)))
    distribution, _ = outcome(exchanged, chance)
    assert np.abs(distribution - P).max() > 2 / STEPS


def test_draws_without_replacement_stand_most_often():
    stood = {kind: make_outcome(kind)[1] for kind in KINDS}
    assert stood["without replacement"] > stood["independent"] > np.minimum(P, Q).sum()


@pytest.mark.slow
def test_draws_in_order_are_draws_without_replacement():
    count = 40_000
    keys = jax.random.split(jax.random.key(0), (count, 1))
    drawn = draw_without_replacement(keys, jnp.broadcast_to(Q, (count, 1, V)), 2)[:, 0]
    found = np.zeros((V, V))
    np.add.at(found, tuple(np.asarray(drawn).T), 1 / count)
    _, chance = without_replacement()
    np.testing.assert_allclose(found.ravel(), chance, atol=0.008)  # four standard errors


@pytest.mark.slow
def test_what_cannot_be_drawn_never_stands():
    """Of two children one token is all that q has."""
    q = np.eye(V, dtype=np.float32)[2]
    drawn = jnp.array([[[2, 0]]])
    distribution = WithoutReplacement.from_draws(
        jnp.asarray(q)[None, None], drawn, levels=(0, 0), ranks=(0, 1)
    )
    assert distribution.prob(drawn[:, 0]).tolist() == [[1.0, np.inf]]
    untouched = distribution.residual(jnp.asarray(P)[None], jnp.array([1]))
    np.testing.assert_allclose(untouched[0], P)


def test_written_out_the_laws_are_the_same():
    draft, _ = without_replacement()
    whole = jax.jit(lambda distribution: distribution.categorical(V))(draft.distribution)
    apart = PAIRS[:, 0] != PAIRS[:, 1]
    np.testing.assert_allclose(
        pick_tokens(whole.probs, draft.tokens)[apart], draft.distribution.prob(draft.tokens)[apart],
        rtol=1e-5,
    )  # fmt: skip
    np.testing.assert_allclose(np.asarray(whole.probs)[apart].sum(axis=-1), 1.0, atol=ROUNDING)


#   0: 7   1: 8   2: 9 behind 7   3: 5 behind 8   4: 6 behind 5
NODES = jnp.array([[7, 8, 9, 5, 6]])
PARENTS = jnp.array([[-1, -1, 0, 1, 3]])


@pytest.mark.parametrize(
    ("best", "written", "path"),
    [
        # Of the pending token, then of every node.
        ([8, 0, 5, 0, 6, 2], [8, 5, 6, 2], [1, 3, 4]),
        ([8, 0, 5, 0, 1, 2], [8, 5, 1], [1, 3]),
        ([7, 5, 0, 0, 0, 0], [7, 5], [0]),  # 5 hangs on the other
        ([3, 0, 0, 0, 0, 0], [3], []),
    ],
)
def test_greedily_the_argmax_is_followed_while_a_child_has_it(best, written, path):
    logits = jax.nn.one_hot(jnp.array([best]), 10)
    verdict = jax.jit(match_tree_greedily)(Draft.chain(NODES).replace(parents=PARENTS), logits)
    assert verdict.tokens[0, : int(verdict.count[0])].tolist() == written
    assert int(verdict.accepted[0]) == len(path)
    assert verdict.path[0, : len(path)].tolist() == path


def test_sampling_walks_the_same_way_where_the_target_is_certain():
    best = jnp.array([[8, 0, 5, 0, 6, 2]])
    p = jax.nn.one_hot(best, 10)
    draft = Draft.chain(NODES).replace(parents=PARENTS)
    keys = jax.random.split(jax.random.key(0), 1)
    verdict = jax.jit(match_tree_by_sampling)(draft, p, jnp.full((1, 5), 0.5), keys)
    assert verdict.tokens[0, :4].tolist() == [8, 5, 6, 2]
    assert verdict.path[0, :3].tolist() == [1, 3, 4]


def test_nodes_beyond_the_length_are_not_there():
    logits = jax.nn.one_hot(jnp.array([[8, 0, 5, 0, 6, 2]]), 10)
    draft = Draft.chain(NODES, jnp.array([3])).replace(parents=PARENTS)
    assert match_tree_greedily(draft, logits).tokens[0, :2].tolist() == [8, 5]
    assert int(match_tree_greedily(draft, logits).accepted[0]) == 1
