"""Rules where single precision has no digits left: drafters that are certain up to 1e-12.

The law of the first token written is put together in double precision from a rule's own chances and
residuals, over all drafts. Nothing is drawn, so nothing is up to chance: it must be the law that
the rule promises, up to the rounding of single precision.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extremes import DIGITS, LARGE, ROUNDING, certain, exact_distribution, pairs, round_probs

from specjax.contracts import distribution
from specjax.contracts.distribution import (
    Categorical,
    OneHot,
    WithoutReplacement,
    compute_remaining_mass,
)
from specjax.contracts.draft import Draft
from specjax.verification import block, lenient, speculative_sampling, traversal
from specjax.verification import tree as trees
from specjax.verification.speculative_cascade import DEFERRALS, SpeculativeCascade


def repeat_rows(probs: np.ndarray, rows: int, count: int) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(probs, jnp.float32), (rows, count, len(probs)))


def chances(stands: Callable[[jax.Array], jax.Array], rows: int) -> np.ndarray:
    """The chance [B] of what stands where a uniform number [B] is below it, by bisection."""
    low, high = np.zeros(rows), np.full(rows, 2.0)
    for _ in range(40):
        middle = (low + high) / 2
        yes = np.asarray(stands(jnp.asarray(middle, jnp.float32)))
        low, high = np.where(yes, middle, low), np.where(yes, high, middle)
    return np.minimum(high, 1.0)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch):
    """Speculative sampling of one token with given numbers: whether it stands, and the residual."""
    seen = []

    def note(keys, weights):
        seen.append(weights)
        return jnp.zeros(len(weights), jnp.int32)

    @jax.jit
    def judge(draft, p, lenience, u):
        monkeypatch.setattr(speculative_sampling, "draw_uniform", lambda keys, count: u[:, None])
        monkeypatch.setattr(speculative_sampling, "draw", note)
        keys = jax.random.split(jax.random.key(0), len(u))
        accepted = speculative_sampling.match_by_sampling(draft, p, lenience, keys).accepted
        return accepted > 0, seen.pop()

    return judge


def compute_first_law(
    judge, draft: Draft, p: np.ndarray, lenience: float, drafted: np.ndarray
) -> np.ndarray:
    """The law of the first token, where row x drafts token x with the chance drafted[x]."""
    rows = len(drafted)
    target = repeat_rows(p, rows, 2)
    chance = chances(lambda u: judge(draft, target, lenience, u)[0], rows)
    rest = exact_distribution(judge(draft, target, lenience, jnp.full(rows, 2.0))[1])
    return drafted * chance + (drafted * (1.0 - chance)) @ rest


def every_token(q: np.ndarray) -> Draft:
    tokens = jnp.arange(len(q), dtype=jnp.int32)[:, None]
    return Draft.chain(tokens, distribution=Categorical(repeat_rows(q, len(q), 1)))


def test_speculative_sampling_writes_the_targets_distribution(judged):
    for q, p in pairs():
        found = compute_first_law(judged, every_token(q), p, 1.0, exact_distribution(q))
        np.testing.assert_allclose(found, exact_distribution(p), rtol=0, atol=ROUNDING)


@pytest.mark.slow
def test_rules_of_one_position_are_those_of_double_precision_in_a_large_vocabulary():
    """The residual, what a nested review lets through and a mixture, by their distance."""
    mixture = jax.jit(SpeculativeCascade("margin", "token").mix)
    for q, p in pairs(sizes=(LARGE,), all_digits=(3, 9)):
        tokens = jnp.zeros((1, 1), jnp.int32)
        draft = Draft.chain(tokens, distribution=Categorical(jnp.asarray(q)[None, None]))
        target = repeat_rows(p, 1, 2)
        kept = np.minimum(exact_distribution(q), exact_distribution(p))
        rest = exact_distribution(
            jax.jit(speculative_sampling.compute_residual)(draft, target, jnp.array([0]))[0]
        )
        far = {"residual": kept + (1.0 - kept.sum()) * rest - exact_distribution(p)}
        for lenience in (1.0, 0.1):
            let_through = jax.jit(lenient.compute_induced_distribution)(
                draft, target, jnp.full((1, 1), lenience)
            )[0, 0]
            far[f"lenience {lenience}"] = let_through - lenient_distribution(q, p, lenience)
        far["mixture"] = mixture(draft, target, 0.2)[0, 0] - mixed_distribution("token", q, p, 0.2)
        for name, difference in far.items():
            assert np.abs(difference).sum() / 2 < 1e-5, name


@pytest.mark.slow
def test_certain_drafts_leave_the_targets_distribution(judged):
    for q, p in pairs():
        tokens = jnp.full((len(q), 1), int(q.argmax()))
        draft = Draft.chain(tokens, distribution=OneHot(tokens))
        mass = np.eye(len(q))[0]
        target = repeat_rows(p, len(q), 2)
        chance = chances(lambda u, d=draft, t=target: judged(d, t, 1.0, u)[0], len(q))
        rest = exact_distribution(judged(draft, target, 1.0, jnp.full(len(q), 2.0))[1])
        found = np.eye(len(q))[tokens[0, 0]] * chance[0] + (1.0 - chance[0]) * (mass @ rest)
        np.testing.assert_allclose(found, exact_distribution(p), rtol=0, atol=ROUNDING)


def lenient_distribution(q: np.ndarray, p: np.ndarray, lenience: float) -> np.ndarray:
    q, p = exact_distribution(q), exact_distribution(p)
    rest = np.maximum(p - q, 0.0)
    spread = rest / rest.sum() if rest.sum() > distribution.NO_RESIDUAL else p
    return np.minimum(q, p / lenience) + np.maximum(q - p / lenience, 0.0).sum() * spread


@pytest.mark.slow
@pytest.mark.parametrize("lenience", [0.5, 0.01])
def test_lenience_writes_the_distribution_of_its_formula(judged, lenience):
    for q, p in pairs():
        found = compute_first_law(judged, every_token(q), p, lenience, exact_distribution(q))
        np.testing.assert_allclose(
            found, lenient_distribution(q, p, lenience), rtol=0, atol=ROUNDING
        )


@pytest.mark.parametrize("lenience", [1.0, 0.5])
def test_a_nested_review_lets_through_what_it_says(lenience):
    """Also where it is less than a rounding of 1, as the reviewer above divides by it."""
    induced = jax.jit(lenient.compute_induced_distribution)
    for q, p in pairs():
        draft = Draft.chain(jnp.zeros((1, 1), jnp.int32), distribution=Categorical(q[None, None]))
        found = induced(draft, repeat_rows(p, 1, 2), jnp.full((1, 1), lenience))[0, 0]
        expected = lenient_distribution(q, p, lenience)
        np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)
    q, p = np.array([[2e-9, 1.0 - 2.0**-24, 0.0], [1e-9, 1.0 - 2.0**-24, 1e-9]], np.float32)
    draft = Draft.chain(jnp.zeros((1, 1), jnp.int32), distribution=Categorical(q[None, None]))
    found = induced(draft, repeat_rows(p, 1, 2), jnp.full((1, 1), lenience))[0, 0]
    np.testing.assert_allclose(found[2], 1e-9 if lenience == 1.0 else 0.0, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("defer", DEFERRALS)
def test_speculative_cascades_write_their_mixture(judged, defer):
    rule, margin = SpeculativeCascade("margin", defer), 0.2
    mixture = jax.jit(rule.mix)
    for q, p in pairs():
        mixed = np.asarray(mixture(every_token(q), repeat_rows(p, len(q), 2), margin)[0, 0])
        found = compute_first_law(judged, every_token(q), mixed, 1.0, exact_distribution(q))
        np.testing.assert_allclose(found, exact_distribution(mixed), rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(
            found, mixed_distribution(defer, q, p, margin), rtol=0, atol=ROUNDING
        )


def mixed_distribution(defer: str, q: np.ndarray, p: np.ndarray, margin: float) -> np.ndarray:
    q, p = exact_distribution(q), exact_distribution(p)
    if defer == "token":
        good = p >= (1.0 - margin) * p.max()
        return np.where(good, q, 0.0) + q[~good].sum() * p
    gain = p.max() - q.max()
    bar = {"diff": margin, "opt": margin * 0.5 * np.abs(p - q).sum()}.get(defer)
    deferred = q.max() < 1.0 - margin if defer == "chow" else gain > bar
    return p if deferred else q


def siblings(q: np.ndarray, count: int) -> tuple[Draft, np.ndarray]:
    """All orders of `count` children drawn without replacement, and how likely each is."""
    tokens = np.array(list(itertools.permutations(range(len(q)), count)))
    exact, chance = exact_distribution(q), np.ones(len(tokens))
    for rank in range(count):
        left = np.repeat(exact[None], len(tokens), 0)
        np.put_along_axis(left, tokens[:, :rank], 0.0, axis=1)
        own = np.take_along_axis(left, tokens[:, [rank]], axis=1)[:, 0]
        chance *= own / np.maximum(left.sum(axis=1), np.finfo(float).tiny)
    drawn = jnp.asarray(tokens, jnp.int32)
    made = WithoutReplacement.from_draws(
        repeat_rows(q, len(tokens), 1), drawn[:, None], (0,) * count, tuple(range(count))
    )
    draft = Draft.chain(drawn, distribution=made)
    return draft.replace(parents=jnp.full(drawn.shape, -1)), chance


def tree_distribution(draft: Draft, chance: np.ndarray, p: np.ndarray, judge) -> np.ndarray:
    """The law of the first token where the children are tried one after another."""
    rows, count = draft.tokens.shape
    target, tokens = repeat_rows(p, rows, count + 1), np.asarray(draft.tokens)
    found, left = np.zeros(len(p)), chance.copy()
    for rank in range(count):

        def stands(u: jax.Array, rank: int = rank) -> jax.Array:
            place = jnp.arange(count)
            return judge(draft, target, jnp.where(place == rank, u[:, None], jnp.inf))[0]

        own = left * chances(stands, rows)
        found += np.bincount(tokens[:, rank], own, len(p))
        left = left - own
    return found + left @ exact_distribution(
        judge(draft, target, jnp.full((rows, count), jnp.inf))[1]
    )


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch):
    """The rule of trees with given numbers: whether a child stands, and the last residual."""
    seen = []

    def note(keys, weights):
        seen.append(weights)
        return jnp.zeros(len(weights), jnp.int32)

    @jax.jit
    def judge(draft, p, accept):
        monkeypatch.setattr(trees, "draw", note)
        verdict = trees.match_tree_by_sampling(
            draft, p, accept, jax.random.split(jax.random.key(0), len(p))
        )
        return verdict.accepted > 0, seen.pop()

    return judge


def worst_tree(judge, count: int) -> float:
    """The largest error of a probability over all cases."""
    worst = 0.0
    for q, p in pairs(sizes=(5,)):
        draft, chance = siblings(q, count)
        found = tree_distribution(draft, chance, p, judge)
        worst = max(worst, np.abs(found - exact_distribution(p)).max())
    return worst


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_trees_of_certain_drafters_write_the_targets_distribution(walked, count):
    assert worst_tree(walked, count) < ROUNDING


def difference_of_sums(probs: jax.Array, drawn: jax.Array) -> jax.Array:
    """What is left as one less what was drawn, which cancels."""
    own = jnp.take_along_axis(probs, drawn, axis=-1)
    return jnp.sum(probs, axis=-1, keepdims=True) - jnp.cumsum(own, axis=-1) + own


@pytest.mark.slow
def test_a_mass_that_is_a_difference_of_sums_is_caught(walked, monkeypatch):
    monkeypatch.setattr(distribution, "compute_remaining_mass", difference_of_sums)
    assert worst_tree(walked, 2) > 1e-3


def leaves_first_distribution(draft: Draft, chance: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The law of the first token where siblings are judged as a whole tree."""
    rows, count = draft.tokens.shape
    target, tokens = repeat_rows(p, rows, count + 1), np.asarray(draft.tokens)
    stands, rest = (np.asarray(x, np.float64) for x in traverse_tree(draft, target))
    found, left = np.zeros(len(p)), chance.copy()
    for rank in range(count):
        found += np.bincount(tokens[:, rank], left * stands[:, rank + 1], len(p))
        left = left * (1.0 - stands[:, rank + 1])
    return found + left @ exact_distribution(rest)


@jax.jit
def traverse_tree(draft: Draft, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The chances of all places, and what the pending token draws from where no node stands."""
    weights, stands = traversal.compute_acceptance_probs(draft, p)
    return stands, traversal.compute_residual(draft, p, weights, jnp.zeros(len(p), jnp.int32))


def worst_traversal(count: int) -> float:
    worst = 0.0
    for q, p in pairs(sizes=(5,)):
        found = leaves_first_distribution(*siblings(q, count), p)
        worst = max(worst, np.abs(found - exact_distribution(p)).max())
    return worst


def test_trees_judged_from_the_leaves_write_it_too(monkeypatch):
    assert worst_traversal(2) < ROUNDING
    monkeypatch.setattr(distribution, "compute_remaining_mass", difference_of_sums)
    assert worst_traversal(2) > 1e-3


def law_of_siblings(q: np.ndarray, p: np.ndarray, drawn: list[int]) -> np.ndarray:
    """The law of the first token in double precision where these children were drawn from q."""
    left, rest, reached = exact_distribution(q), exact_distribution(p), 1.0
    found = np.zeros(len(p))
    for token in drawn:
        own = left / left.sum()
        stands = min(1.0, rest[token] / own[token])
        found[token] += reached * stands
        reached *= 1.0 - stands
        above = np.maximum(rest - own, 0.0)
        rest = above / above.sum() if above.sum() > distribution.NO_RESIDUAL else rest
        left[token] = 0.0
    return found + reached * rest


@pytest.mark.slow
def test_rules_of_trees_are_those_of_double_precision_in_a_large_vocabulary(walked):
    """By the distance of the first token's law where given children were drawn."""
    for q, p in pairs(sizes=(LARGE,), all_digits=(3, 9)):
        likeliest = np.argsort(-q)[:2].tolist()
        drawn = [*likeliest, LARGE - 1]
        made = WithoutReplacement.from_draws(
            repeat_rows(q, 1, 1), jnp.array([[drawn]]), (0,) * 3, tuple(range(3))
        )
        draft = Draft.chain(jnp.array([drawn]), distribution=made)
        draft = draft.replace(parents=jnp.full((1, 3), -1))
        expected = law_of_siblings(q, p, drawn)
        found = {
            "root first": tree_distribution(draft, np.ones(1), p, walked),
            "leaves first": leaves_first_distribution(draft, np.ones(1), p),
        }
        for name, one in found.items():
            assert np.abs(one - expected).sum() / 2 < 1e-5, name


@pytest.mark.slow
def test_block_verification_is_that_of_double_precision_in_a_large_vocabulary():
    """The chances of one and of two drafted tokens to stand, by the mass that they move.

    S / (S + 1 - P) has no digits where q = p; there S + 1 - P is a rounding, and so is what is off.
    """
    for q, p in pairs(sizes=(LARGE,), all_digits=(3, 9)):
        for token in (int(q.argmax()), int(p.argmax()), LARGE - 1):
            tokens = jnp.array([[token, token]])
            draft = Draft.chain(tokens, distribution=Categorical(repeat_rows(q, 1, 2)))
            target = repeat_rows(p, 1, 3)
            weights = jax.jit(block.compute_prefix_weights)(draft, target)
            found = np.asarray(
                jax.jit(block.compute_acceptance_probs)(draft, target, weights), np.float64
            )[0]
            ratio = exact_distribution(p)[token] / exact_distribution(q)[token]
            weight = min(1.0, ratio)
            left = np.maximum(weight * exact_distribution(p) - exact_distribution(q), 0.0).sum()
            moved = left + 1.0 - weight
            assert abs(found[0] * moved - left) < 1e-5
            np.testing.assert_allclose(found[1], min(1.0, weight * ratio), rtol=1e-4)


@pytest.mark.parametrize("size", [64, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_what_siblings_are_drawn_from_has_all_digits(size):
    """Relative to itself, however little it is; the difference of sums has none."""
    off = []
    for digits in DIGITS:
        q = round_probs(certain(size, digits, digits), 1.0)
        drawn = np.random.default_rng(digits).permutation(size - 2)[:7] + 2
        drawn = jnp.asarray(np.append(1, drawn)[None, None], jnp.int32)
        found = np.asarray(jax.jit(compute_remaining_mass)(q[None, None], drawn))[0, 0]
        left, exact = q.astype(np.float64), []
        for token in drawn[0, 0].tolist():
            exact.append(left.sum())
            left[token] = 0.0
        np.testing.assert_allclose(found, exact, rtol=2e-5)
        cancelled = np.asarray(difference_of_sums(q[None, None], drawn))[0, 0]
        off.append(np.abs(cancelled / exact - 1.0).max())
    assert min(off[3:]) > 0.01


def test_a_part_of_a_block_stands_by_what_is_left_of_it_however_little():
    """S / (S + 1 - P) where S is below a rounding of P: by S = P - sum min(P p, q) it has none."""
    for digits in range(6, 13):
        little = np.float32(10.0**-digits)
        q = np.array([1.0 - little, little / 2, little / 2], np.float32)
        p = np.array([1.0 - 2 * little, 2 * little, 0.0], np.float32)
        first = np.array([1.0, 0.0, 0.0], np.float32)
        p_first = np.array([1.0 - 2.0**-20, 2.0**-20, 0.0], np.float32)
        draft = Draft.chain(
            jnp.array([[0, 0]]), distribution=Categorical(jnp.asarray(np.stack([first, q])[None]))
        )
        target = jnp.asarray(np.stack([p_first, p, p])[None])
        weights = jax.jit(block.compute_prefix_weights)(draft, target)
        scaled = (1.0 - 2.0**-20) * p.astype(np.float64)
        rest = np.maximum(scaled - q, 0.0).sum()
        expected = rest / (rest + 2.0**-20)
        found = jax.jit(block.compute_acceptance_probs)(draft, target, weights)[0, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    tokens = jnp.array([[1]])
    p = jnp.asarray(round_probs(certain(6, 9, 0), 1.0))[None, None]
    exact = np.asarray(p, np.float64)[0, 0, np.arange(6) != 1].sum()
    np.testing.assert_allclose(OneHot(tokens).excess(p)[0, 0], exact, rtol=1e-5)
