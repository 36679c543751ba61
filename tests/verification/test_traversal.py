"""Traversal verification: the target's distribution by enumeration, and more tokens."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts.distribution import Categorical, OneHot, WithoutReplacement
from specjax.contracts.draft import Draft
from specjax.contracts.tree import sort_by_level
from specjax.decoding.strategy import strategy
from specjax.runtime.errors import UserError
from specjax.verification import block, traversal

V, DEPTH = 3, 3
ROUNDING = 2e-6
"""Float32 sums of a few products."""
CHAIN, PAIRS, ODD = (-1, 0, 1), (-1, -1, 0, 0, 1, 1), (-1, -1, 0, 1, 1)


def exact_distribution(seed: int, spread: float = 1.5) -> dict[tuple[int, ...], np.ndarray]:
    """A distribution of the next token behind every prefix."""
    random = np.random.default_rng(seed)
    prefixes = (p for n in range(DEPTH + 1) for p in itertools.product(range(V), repeat=n))
    logits = {prefix: spread * random.standard_normal(V) for prefix in prefixes}
    return {prefix: np.exp(x) / np.exp(x).sum() for prefix, x in logits.items()}


P, Q = exact_distribution(1), exact_distribution(2, 1.0)


def path(tokens, parents, node: int) -> tuple[int, ...]:
    """The tokens up to a node."""
    return (*path(tokens, parents, parents[node]), tokens[node]) if node >= 0 else ()


def places(parents) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of every node the law it was drawn from, numbered by parents, and its rank."""
    inner = list(dict.fromkeys(parents))
    ranks = [parents[:node].count(parent) for node, parent in enumerate(parents)]
    return tuple(map(inner.index, parents)), tuple(ranks)


def list_drafts(kind: str, parents, shared: bool = False) -> tuple[Draft, np.ndarray]:
    """Every draft, a row each, and how likely it is.

    `shared`: the nodes of a level share a law and its draws, as parallel heads have it.
    """
    tokens = np.array(list(itertools.product(range(V), repeat=len(parents))))
    depths = sort_by_level(parents)[1]
    distributions, ranks = (depths, places(parents)[1]) if shared else places(parents)
    first = [distributions.index(number) for number in range(max(distributions) + 1)]
    heads = [depths[node] if shared else None for node in first]

    def base(row, number) -> np.ndarray:
        above = (0,) * heads[number] if shared else path(row, parents, parents[first[number]])
        return Q[above]

    probs = np.array([[base(row, number) for number in range(len(first))] for row in tokens])
    own = np.take_along_axis(probs[:, distributions], tokens[..., None], axis=2)[..., 0]
    if kind == "independent":
        draft = Draft.chain(
            jnp.asarray(tokens, jnp.int32),
            distribution=Categorical(jnp.asarray(probs[:, distributions], jnp.float32)),
        )
        return with_parents(draft, parents), own.prod(axis=1)
    siblings = np.full((len(tokens), len(first), max(ranks) + 1), -1)
    chance = np.ones(len(tokens))
    for node, (number, rank) in enumerate(zip(distributions, ranks, strict=True)):
        again = node != next(
            n for n in range(len(distributions)) if (distributions[n], ranks[n]) == (number, rank)
        )
        if again:
            chance *= tokens[:, node] == siblings[:, number, rank]
            continue
        siblings[:, number, rank] = tokens[:, node]
        left = probs[:, number].copy()
        np.put_along_axis(left, siblings[:, number, :rank], 0.0, axis=1)
        fresh = np.all(siblings[:, number, :rank] != tokens[:, [node]], axis=1)
        chance *= fresh * own[:, node] / left.sum(axis=1)
    for row in siblings.reshape(-1, siblings.shape[-1]):
        # A parent of fewer children has drawn as many as any other.
        row[row < 0] = [token for token in range(V) if token not in row][: np.sum(row < 0)]
    distribution = WithoutReplacement.from_draws(
        jnp.asarray(probs, jnp.float32), jnp.asarray(siblings, jnp.int32), distributions, ranks
    )
    draft = Draft.chain(jnp.asarray(tokens, jnp.int32), distribution=distribution)
    return with_parents(draft, parents), chance


def certain(parents) -> tuple[Draft, np.ndarray]:
    """One draft, always: siblings differ."""
    tokens = jnp.asarray([places(parents)[1]], jnp.int32)
    return with_parents(Draft.chain(tokens, distribution=OneHot(tokens)), parents), np.ones(1)


def with_parents(draft: Draft, parents) -> Draft:
    return draft.replace(parents=jnp.broadcast_to(jnp.array(parents), draft.tokens.shape))


def target(draft: Draft, parents) -> jax.Array:
    nodes = range(-1, len(parents))
    rows = [[P[path(row, parents, node)] for node in nodes] for row in np.asarray(draft.tokens)]
    return jnp.asarray(np.array(rows), jnp.float32)


def leaves_first(parents) -> list[int]:
    """All nodes and the pending token, -1, in the order in which they are tried."""

    def behind(node: int) -> list[int]:
        children = [child for child, parent in enumerate(parents) if parent == node]
        return [*itertools.chain(*map(behind, children)), node]

    return behind(-1)


def measure_errors(
    draft: Draft, chance: np.ndarray, parents, chances, distributions
) -> tuple[float, float]:
    """The largest error of a text's probability; the mean number of nodes that stand."""
    begun: dict[tuple[int, ...], float] = {}
    accepted, left = 0.0, chance.copy()
    for node in leaves_first(parents):
        ends = left * chances[:, node + 1]
        left = left - ends
        for row, tokens in enumerate(np.asarray(draft.tokens).tolist()):
            stood = path(tokens, parents, node)
            accepted += ends[row] * len(stood)
            for token in range(V):
                text = (*stood, token)
                begun[text] = begun.get(text, 0.0) + ends[row] * distributions[row, node + 1, token]
    assert left.max() < ROUNDING  # the pending token stands where nothing else does
    worst = 0.0
    for text in itertools.product(range(V), repeat=DEPTH + 1):
        steps = [P[text[:place]][text[place]] for place in range(DEPTH + 1)]
        made = sum(
            begun.get(text[: place + 1], 0.0) * np.prod(steps[place + 1 :])
            for place in range(DEPTH + 1)
        )
        worst = max(worst, abs(made - np.prod(steps)))
    return worst, accepted


def of_rule(draft: Draft, parents) -> tuple[np.ndarray, np.ndarray]:
    chances, distributions = numbers(draft, target(draft, parents))
    distributions = np.asarray(distributions, np.float64)
    return np.asarray(chances, np.float64), distributions / np.maximum(
        distributions.sum(-1, keepdims=True), 1e-30
    )


@jax.jit
def numbers(draft: Draft, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The chances of all places and what each draws from, not normalized."""
    weights, chances = traversal.compute_acceptance_probs(draft, p)
    places = jnp.broadcast_to(jnp.arange(p.shape[1])[:, None], (p.shape[1], len(p)))
    distribution = functools.partial(traversal.compute_residual, draft, p, weights)
    return chances, jnp.moveaxis(jax.lax.map(distribution, places), 0, 1)


CASES = {
    "a chain": ("independent", CHAIN),
    "independent pairs": ("independent", PAIRS),
    "pairs without replacement": ("without", PAIRS),
    "an odd tree": ("without", ODD),
    "certain tokens": ("certain", PAIRS),
}


@functools.cache
def case(name: str):
    kind, parents = CASES[name]
    return (*(certain(parents) if kind == "certain" else list_drafts(kind, parents)), parents)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_has_the_targets_distribution(name):
    draft, chance, parents = case(name)
    assert chance.sum() == pytest.approx(1.0)
    assert measure_errors(draft, chance, parents, *of_rule(draft, parents))[0] < ROUNDING


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
@pytest.mark.parametrize("kind", ["without", "independent"])
def test_certain_drafters_leave_it_too(kind, digits, monkeypatch):
    monkeypatch.setitem(globals(), "Q", sure(2, digits))
    draft, chance = list_drafts(kind, PAIRS)
    for p in (exact_distribution(1), sure(5, digits), sure(2, digits - 2)):
        monkeypatch.setitem(globals(), "P", p)
        assert measure_errors(draft, chance, PAIRS, *of_rule(draft, PAIRS))[0] < ROUNDING


def test_wrong_chances_do_not_keep_it():
    draft, chance, parents = case("pairs without replacement")
    chances, distributions = of_rule(draft, parents)
    assert (
        measure_errors(draft, chance, parents, np.minimum(1.0, 1.1 * chances), distributions)[0]
        > 1e-3
    )
    independent = draft.replace(distribution=case("independent pairs")[0].distribution)
    assert measure_errors(draft, chance, parents, *of_rule(independent, parents))[0] > 1e-3


def test_draws_that_nodes_share_do_not_keep_it_and_are_refused():
    draft, chance = list_drafts("without", PAIRS, shared=True)
    assert chance.sum() == pytest.approx(1.0)
    assert measure_errors(draft, chance, PAIRS, *of_rule(draft, PAIRS))[0] > 1e-3
    spelled = {"drafter": "medusa", "widths": (2, 2), "rule": "traversal"}
    with pytest.raises(UserError, match="must be 'lossless' with drafter 'medusa' at a temp"):
        strategy(**spelled, temperature=1.0)
    assert strategy(**spelled).lossless


def one_by_one(draft: Draft, chance: np.ndarray, parents, laws_of) -> float:
    """Mean number of nodes that stand where every node is tried from the pending token on."""
    accepted, tokens = 0.0, np.asarray(draft.tokens)

    def walk(row: int, node: int, mass: float) -> float:
        own, total = P[path(tokens[row], parents, node)], 0.0
        for child in (child for child, parent in enumerate(parents) if parent == node):
            q, token = laws_of[row, child], tokens[row, child]
            stands = min(1.0, own[token] / q[token]) if q[token] > 0 else 0.0
            total += walk(row, child, mass * stands) + mass * stands
            mass *= 1.0 - stands
            rest = np.maximum(own - q, 0.0)
            own = rest / rest.sum() if rest.sum() > 1e-9 else own
        return total

    for row in np.flatnonzero(chance > 0):
        accepted += walk(row, -1, chance[row])
    return accepted


@pytest.mark.parametrize("name", ["a chain", "independent pairs", "pairs without replacement"])
def test_more_nodes_stand_than_one_by_one(name):
    draft, chance, parents = case(name)
    found = measure_errors(draft, chance, parents, *of_rule(draft, parents))[1]
    distributions = np.asarray(draft.distribution.categorical(V).probs, np.float64)
    assert found > one_by_one(draft, chance, parents, distributions) + 0.005


def test_on_a_chain_it_is_block_verification():
    draft, _, parents = case("a chain")
    p = target(draft, parents)
    chances, distributions = of_rule(draft, parents)
    weights = block.compute_prefix_weights(draft, p)
    np.testing.assert_allclose(
        chances[:, 1:], block.compute_acceptance_probs(draft, p, weights), atol=1e-6
    )
    for accepted in range(DEPTH + 1):
        own = block.compute_residual(draft, p, weights, jnp.full(len(p), accepted))
        own /= jnp.sum(own, axis=1, keepdims=True)
        np.testing.assert_allclose(distributions[:, accepted], own, atol=1e-5)


def test_the_first_node_that_stands_is_found_leaves_first():
    random = np.random.default_rng(0)
    nodes, rows = 7, 200
    parents = np.stack([[random.integers(-1, node) for node in range(nodes)] for _ in range(rows)])
    stands = random.random((rows, nodes)) < 0.3
    draft = Draft.chain(jnp.zeros((rows, nodes), jnp.int32)).replace(parents=jnp.asarray(parents))
    found = traversal.find_first_accepted(draft, jnp.asarray(stands))
    for row in range(rows):
        order = leaves_first(parents[row].tolist())
        assert found[row] == next(n for n in order if n < 0 or stands[row, n])


def test_nodes_beyond_the_length_are_not_there():
    draft, _, parents = case("pairs without replacement")
    cut = draft.replace(length=jnp.full_like(draft.length, 2))
    chances, distributions = of_rule(cut, parents)
    assert not chances[:, 3:].any()
    np.testing.assert_allclose(
        distributions[:, 1], np.asarray(target(draft, parents))[:, 1], atol=1e-6
    )


def test_where_a_child_takes_all_nothing_is_left_for_its_siblings():
    even = np.full(V, 1 / V)
    distributions = np.stack([[0.1, 0.45, 0.45], even, even, even]).astype(np.float32)
    tokens = jnp.array([[0, 1, 2]])
    draft = Draft.chain(tokens, distribution=Categorical(jnp.full((1, 3, V), 1 / V)))
    weights, chances = traversal.compute_acceptance_probs(
        with_parents(draft, (-1, 0, 0)), jnp.asarray(distributions)[None]
    )
    np.testing.assert_allclose(weights[0], [1.0, 0.3, 0.3, 0.0], atol=1e-6)
    np.testing.assert_allclose(chances[0], [1.0, 0.0, 0.3, 0.0], atol=1e-6)


@pytest.mark.slow
def test_verdicts_are_as_often_as_the_chances_say():
    draft, chance, parents = case("pairs without replacement")
    rows = 30_000
    picked = np.random.default_rng(3).choice(len(chance), rows, p=chance / chance.sum())
    many = jax.tree.map(lambda x: x[picked], draft)
    keys = jax.random.split(jax.random.key(0), rows)
    verdict = jax.jit(traversal.verify_traversal)(many, target(draft, parents)[picked], keys)
    expected = measure_errors(draft, chance, parents, *of_rule(draft, parents))[1]
    assert float(verdict.accepted.mean()) == pytest.approx(expected, abs=0.03)  # five errors
    text = np.asarray(verdict.tokens)[:, 0]
    np.testing.assert_allclose(np.bincount(text, minlength=V) / rows, P[()], atol=0.014)
