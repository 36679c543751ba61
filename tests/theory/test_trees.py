"""Trees: the best shape against all shapes, published limits, and rounds that are played."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specjax.contracts.tree import build_regular_tree, compute_depths_and_ranks, sort_by_level
from specjax.theory import speculative
from specjax.theory.trees import (
    best,
    count_fed_nodes,
    expected_tokens,
    fastest,
    fastest_by_size,
    tree_improvement,
)

FALLING = np.array([[0.5, 0.2, 0.1], [0.6, 0.15, 0.05], [0.3, 0.3, 0.2]])
ODD = np.array([[0.2, 0.6, 0.1], [0.0, 0.5, 0.4], [0.9, 0.0, 0.1]])  # later ranks stand more often
STEEP = np.array([[0.8, 0.02], [0.8, 0.02], [0.8, 0.02], [0.8, 0.02]])


def all_trees(nodes: int, levels: int, width: int) -> set[tuple[int, ...]]:
    """Every tree of so many nodes, with its parents as `sort_by_level` numbers them."""
    found = set()
    for parents in itertools.product(*(range(-1, node) for node in range(nodes))):
        parents, depths, ranks = sort_by_level(parents)
        if max(depths) < levels and max(ranks) < width:
            found.add(parents)
    return found


@pytest.mark.parametrize("table", [FALLING, ODD, STEEP], ids=["falling", "odd", "steep"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 6])
def test_no_tree_of_as_many_nodes_gives_more_tokens(table, nodes):
    found = best(table, nodes)
    assert len(found) <= nodes
    trees = all_trees(nodes, *table.shape)
    most = max(expected_tokens(table, parents) for parents in trees)
    assert expected_tokens(table, found) == pytest.approx(most, rel=1e-12)
    assert min(expected_tokens(table, parents) for parents in trees) < most or len(trees) == 1


def test_of_falling_acceptance_the_likeliest_nodes_are_the_best():
    """No node is likelier than its parent or an earlier sibling: any number of them is a tree."""
    _, depths, ranks = whole = build_regular_tree((3, 3, 3))
    chances = np.ones(len(depths) + 1)
    for node, parent in enumerate(whole[0]):
        chances[node] = chances[parent] * FALLING[depths[node], ranks[node]]
    for nodes in (4, 9, 20):
        likeliest = 1.0 + np.sort(chances[:-1])[::-1][:nodes].sum()
        assert expected_tokens(FALLING, best(FALLING, nodes)) == pytest.approx(likeliest)


def test_the_tree_of_one_child_each_is_a_chain():
    alphas = [0.9, 0.7, 0.4]
    chain = best(np.array(alphas)[:, None], 10)
    assert chain == (-1, 0, 1)  # the table has no more levels
    tokens = speculative.expected_tokens_by_position(alphas)
    assert expected_tokens(np.array(alphas)[:, None], chain) == pytest.approx(float(tokens))


def test_more_levels_are_dug_where_acceptance_is_steep():
    assert best(STEEP, 4) == (-1, 0, 1, 2)
    flat = [[0.3, 0.3, 0.3], [0.1, 0.1, 0.1]]
    assert best(flat, 3) == (-1, -1, -1)


def test_what_never_stands_is_left_out():
    assert best([[0.5, 0.0], [0.0, 0.0]], 5) == (-1,)


def test_rounds_that_are_played_give_the_expected_tokens():
    rng = np.random.default_rng(0)
    parents = best(FALLING, 7)
    depths, ranks = compute_depths_and_ranks(parents)
    tokens = []
    for _ in range(20_000):
        node, depth = -1, 0
        while True:
            children = [k for k, parent in enumerate(parents) if parent == node]
            edges = np.cumsum([FALLING[depth, ranks[k]] for k in children])
            place = int(np.searchsorted(edges, rng.random(), side="right"))
            if place >= len(children):
                break
            node, depth = children[place], depth + 1
        tokens.append(depth + 1)
    error = np.std(tokens) / np.sqrt(len(tokens))
    assert abs(np.mean(tokens) - expected_tokens(FALLING, parents)) < 4 * error


def test_a_chain_improves_as_the_closed_form_says():
    alpha, length, cost = 0.7, 3, 0.1
    table = np.full((length, 1), alpha)
    expected = speculative.walltime_improvement(alpha, length, cost, 1.2)
    assert tree_improvement(table, (-1, 0, 1), cost, 1.2) == pytest.approx(float(expected))


def test_the_fastest_tree_beats_all_others():
    cost = [0.3, 0.1, 0.1]
    verification = 1.0 + 0.15 * np.arange(6)
    found = fastest(FALLING, 5, cost, verification)
    others = [
        tree_improvement(FALLING, parents, cost, verification)
        for nodes in range(1, 6)
        for parents in all_trees(nodes, 3, 3)
    ]
    assert found.improvement == pytest.approx(max(others)) and found.improvement > 1.0
    again = tree_improvement(FALLING, found.parents, cost, verification)
    assert again == pytest.approx(found.improvement)
    assert expected_tokens(FALLING, found.parents) == pytest.approx(found.tokens)


def test_where_nothing_pays_nothing_is_drafted():
    assert fastest(FALLING, 5, 2.0, 1.0).parents == ()
    assert len(fastest(FALLING, 5, 0.0, 1.0).parents) == 5


def test_a_level_costs_by_the_nodes_that_it_feeds():
    parents = (-1, -1, 0, 1, 2, 3, 3)  # levels of 2, 2 and 3 nodes; two are fed twice
    cost = [0.1, 0.2, 0.4]
    expected = expected_tokens(FALLING, parents) / (0.1 + 0.4 + 0.4 + 1.5)
    assert count_fed_nodes(parents) == (0, 2, 2)
    assert tree_improvement(FALLING, parents, cost, 1.5) == pytest.approx(expected)
    assert count_fed_nodes(()) == ()


def test_of_every_number_of_nodes_there_is_a_fastest_tree():
    verification = 1.0 + 0.15 * np.arange(6)
    found = fastest_by_size(FALLING, 5, 0.1, verification)
    assert [len(tree.parents) for tree in found] == list(range(6))
    for tree in found[1:]:
        improvements = [
            tree_improvement(FALLING, parents, 0.1, verification)
            for parents in all_trees(len(tree.parents), 3, 3)
        ]
        assert tree.improvement == pytest.approx(max(improvements))
    assert max(found, key=lambda tree: tree.improvement) == fastest(FALLING, 5, 0.1, verification)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: best([[0.7, 0.6]], 3), "children together is 1.3; it must be between 0 and 1"),
        (lambda: best([0.5], 3), r"acceptance has shape \(1,\); it must be \[levels, children\]"),
        (lambda: best(FALLING, 0), "nodes is 0; it must be a whole number of at least 1"),
        (lambda: expected_tokens([[0.5]], (-1, 1)), "the parent of node 1 must be an earlier node"),
        (lambda: expected_tokens([[0.5]], (-1, 0)), "has 2 levels .* known of 1 and 1"),
        (lambda: fastest(FALLING, 5, 0.1, [1.0, 1.1]), "known of 1 nodes; it must be of 5"),
        (lambda: fastest(FALLING, 5, [0.1], 1.0), "cost is known of 0 nodes that are fed; it must"),
    ],
)
def test_impossible_arguments_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
