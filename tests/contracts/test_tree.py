"""What follows from the parents of a tree's nodes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contracts import tree

#   0: a    2: its child    4: a child of 2;   1: b    3: its child
PARENTS = jnp.array([[-1, -1, 0, 1, 2], [-1, 0, 1, 2, 3]])


def test_a_node_sees_its_ancestors_and_itself():
    branched, chain = np.asarray(tree.make_ancestor_mask(PARENTS))
    expected = [{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 2, 4}, {0, 1, 3, 5}]
    assert [set(np.flatnonzero(row)) for row in branched] == expected
    np.testing.assert_array_equal(chain, np.tril(np.ones((6, 6), bool)))


def test_depths_count_from_the_pending_token():
    depths = tree.compute_depth(tree.make_ancestor_mask(PARENTS))
    assert depths.tolist() == [[0, 1, 1, 2, 2, 3], [0, 1, 2, 3, 4, 5]]


def test_no_nodes_leave_the_pending_token():
    assert tree.make_ancestor_mask(jnp.zeros((2, 0), jnp.int32)).tolist() == [[[True]]] * 2


def test_a_tree_hangs_on_the_last_token_of_the_text_fed_before_it():
    # Fed are two tokens of text and nodes 0, 1 and 2, or one and the nodes; the last ones hang so.
    parents = tree.append_tree(jnp.array([[-1, -1, 0], [-1, 0, 0]]), jnp.array([1, 0]), 2)
    assert parents.tolist() == [[-1, 0, 0, 1, 3], [-1, 0, 0, 2, 3]]


def test_a_regular_tree_is_numbered_level_by_level():
    parents, levels, ranks = tree.build_regular_tree((2, 3))
    assert parents == (-1, -1, 0, 0, 0, 1, 1, 1)
    assert levels == (0, 0, 1, 1, 1, 1, 1, 1)
    assert ranks == (0, 1, 0, 1, 2, 0, 1, 2)


def test_any_tree_is_renumbered_level_by_level():
    #                                 0   1  2   3  4  5
    parents, depths, ranks = tree.sort_by_level((-1, 0, -1, 1, 0, 2))
    assert parents == (-1, -1, 0, 0, 1, 2)
    assert depths == (0, 0, 1, 1, 1, 2)
    assert ranks == (0, 1, 0, 1, 0, 0)
    assert tree.sort_by_level(tree.build_regular_tree((2, 3, 1))[0]) == tree.build_regular_tree(
        (2, 3, 1)
    )


def test_places_are_found_in_any_order_of_nodes():
    parents = (-1, 0, -1, 1, 0, 2)
    assert tree.compute_depths_and_ranks(parents) == ((0, 1, 0, 2, 1, 1), (0, 0, 1, 0, 1, 0))
    with pytest.raises(
        ValueError, match=r"parents is \(-1, 1\); the parent of node 1 must be an earlier node"
    ):
        tree.compute_depths_and_ranks((-1, 1))
