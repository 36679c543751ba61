"""Trees of the most probable nodes of independent distributions: those of an exhaustive search."""

from __future__ import annotations

import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs
from feature_drafters import make_setting
from slow_cases import some_slow

from specjax.contracts.draft import Draft
from specjax.decoding.strategy import Strategy
from specjax.drafting.block import _best_tree, _jetspec_tree
from specjax.drafting.dflash import DFlash, DSpark
from specjax.drafting.growing import log_probability
from specjax.drafting.neural import Neural
from specjax.models.dflash import DFlash as Model

V, DEPTH, SETS = 4, 3, 300


@pytest.fixture(scope="module")
def context():
    """The rows of a greedy decode before its first round, as many as there are sets."""
    models, params = make_setting("llama", Model)
    strategy = Strategy(DFlash(2), temperature=0.0)
    made = decoder(models, strategy, 14)
    given = inputs([[3, 4, 1]] * SETS, 14)
    return first_state(made, params, *given, strategy.options()).context


jetspec = jax.jit(_jetspec_tree, static_argnums=(0, 1))


def exhaustive(q: np.ndarray, count: int) -> float:
    """The summed probability of the `count` most probable paths of distributions [D, V]."""
    paths = (
        np.prod([q[depth, token] for depth, token in enumerate(path)])
        for length in range(1, DEPTH + 1)
        for path in itertools.product(range(q.shape[1]), repeat=length)
    )
    return sum(sorted(paths, reverse=True)[:count])


ALIKE = (2.0, 2.0, 2.0)
ONE_PARENT = (20.0, 0.1, 0.1)
"""Scales of logits of which one token is likely, and then all are."""


@pytest.mark.parametrize(
    ("count", "scales", "size"),
    [
        *some_slow(
            ((count, ALIKE, V) for count in (1, 3, 6, 12, 30)), (6, ALIKE, V), (30, ALIKE, V)
        ),
        pytest.param(6, ONE_PARENT, 10, marks=pytest.mark.slow),
    ],
)
def test_its_nodes_are_those_of_an_exhaustive_search(count, scales, size, context):
    rng = np.random.default_rng(count)
    logits = np.float32(rng.normal(size=(SETS, DEPTH, size)) * np.array(scales)[:, None])
    draft = jax.jit(_best_tree, static_argnums=0)(count, jnp.asarray(logits), context)
    tokens, parents = np.asarray(draft.tokens), np.asarray(draft.tree_parents)
    q = np.asarray(jax.nn.softmax(logits), np.float64)
    for row in range(SETS):
        score, depth, seen = [], [], set()
        for node in range(count):
            parent = parents[row, node]
            assert parent < node  # parents are kept, and come first
            depth.append(0 if parent < 0 else depth[parent] + 1)
            above = 1.0 if parent < 0 else score[parent]
            score.append(above * q[row, depth[-1], tokens[row, node]])
            seen.add((parent, tokens[row, node]))
        assert len(seen) == count  # siblings differ
        assert sum(score) == pytest.approx(exhaustive(q[row], count), rel=1e-5)


def heap_order(chance: np.ndarray, width: int, size: int) -> list[tuple[int, ...]]:
    """JetSpec's paths of log probabilities [D, V] in order; `size` includes the root, ()."""
    best = np.argsort(-chance, axis=1, kind="stable")
    paths: list[tuple[int, ...]] = [()]
    heap = [(-np.float32(0.0), 0)]
    while heap and len(paths) < size:
        score, number = heapq.heappop(heap)
        path = paths[number]
        if len(path) == len(chance):
            continue
        for token in best[len(path), : min(width, size - len(paths))]:
            heapq.heappush(heap, (score - chance[len(path), token], len(paths)))
            paths.append((*path, int(token)))
    return paths


def drafted_paths(draft: Draft) -> list[list[tuple[int, ...]]]:
    """Of every row the root and the paths to the nodes."""
    made = []
    for row in zip(np.asarray(draft.tokens), np.asarray(draft.tree_parents), strict=True):
        paths: list[tuple[int, ...]] = [()]
        for token, parent in zip(*row, strict=True):
            paths.append((*paths[int(parent) + 1], int(token)))
        made.append(paths)
    return made


LARGE = (64, 15, 5)
"""Tokens, levels and rows of a larger case."""


@pytest.mark.parametrize(
    ("size", "width", "nodes"),
    [((V, DEPTH, SETS), 3, 6), ((V, DEPTH, SETS), 2, 14), (LARGE, 7, 128)],
)
def test_jetspecs_order_is_that_of_a_heap(size, width, nodes, context):
    tokens, depth, rows = size
    logits = np.float32(np.random.default_rng(width).normal(size=(SETS, depth, tokens)))
    logits[1] = 0.0  # ties: the earlier path first
    logits[2, :, 1:] = -np.inf  # impossible tokens, as cuts leave them
    drafted = drafted_paths(jetspec(nodes, width, jnp.asarray(logits), context))
    chance = np.asarray(log_probability(jnp.asarray(logits), context.options.sampling))
    for row in range(rows):
        assert drafted[row] == heap_order(chance[row], width, nodes + 1)


def test_the_most_probable_nodes_sum_up_to_more_than_jetspecs(context):
    """To the expected accepted tokens, if the drafter's distributions are the target's."""
    q = np.random.default_rng(0).dirichlet(np.full(V, 0.5), size=(SETS, DEPTH))
    probable, others = [], []
    for nodes in (3, 6, 12):
        drafted = drafted_paths(jetspec(nodes, 3, jnp.log(q.astype(np.float32)), context))
        others += [sum_paths(*each) for each in zip(q, drafted, strict=True)]
        probable += [exhaustive(one, nodes) for one in q]
    less = np.array(probable) - np.array(others)
    assert less.min() > -1e-6 and np.sum(less > 1e-6) > 0.9 * len(less)
    assert np.mean(probable) == pytest.approx(1.88, abs=0.01)
    assert np.mean(others) == pytest.approx(1.58, abs=0.01)


def sum_paths(q: np.ndarray, paths: list[tuple[int, ...]]) -> float:
    """The probabilities of paths other than the root, under distributions [D, V]."""
    levels = ([q[depth, token] for depth, token in enumerate(path)] for path in paths if path)
    return float(sum(map(np.prod, levels)))


def test_a_tree_may_have_many_nodes_of_a_deep_block():
    spec = DFlash(length=15, nodes=256).spec
    assert spec.width == 256 and spec.longest == 15
    assert len(spec.calls) == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 3, "nodes": 4, "confidence": "confidence"}, "confidence is given; it must not"),
        ({"length": 3, "nodes": 4, "adapt": "acceptance"}, "adapt is given; it must not be"),
    ],
)
def test_what_shortens_chains_is_refused_for_it(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        DFlash(**fields)


def test_distributions_that_depend_on_drafted_tokens_need_a_shape():
    with pytest.raises(ValueError, match="length is 3 and nodes is 4; one of them must be given"):
        DSpark(length=3, nodes=4)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 3, "jetspec_width": 2}, "jetspec_width is 2; it must be 0 without length and"),
        ({"widths": (2, 2), "nodes": 4, "jetspec_width": 2}, "jetspec_width is 2; it must be 0"),
        (
            {"length": 2, "nodes": 7, "jetspec_width": 2},
            "nodes is 7; it must be at most 6, as trees of length 2 and jetspec_width 2 have",
        ),
    ],
)
def test_jetspecs_order_is_refused_for_other_drafts(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        DFlash(**fields)


@pytest.mark.parametrize("drafter", [Neural, DSpark])
def test_jetspecs_order_needs_distributions_of_all_depths_at_once(drafter):
    with pytest.raises(ValueError, match="jetspec_width is 2; it must be 0, as .* at once"):
        drafter(length=3, nodes=6, jetspec_width=2)


def test_no_node_has_more_children_than_there_are_tokens():
    models, params = make_setting("llama", Model)
    made = decoder(models, Strategy(DFlash(length=2, nodes=20, jetspec_width=9)), 14)
    with pytest.raises(ValueError, match="jetspec_width gives a node 9 children; it has at most"):
        made.drafter.check(made.env(params))
