"""Shapes of trees that a search tries beside chains, and what they are expected to give."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_rounds import rounds

from specjax.contracts.tree import compute_depths_and_ranks
from specjax.decoding.strategy import Strategy
from specjax.drafting.neural import Neural
from specjax.experiments.config.defaults import neural_spec
from specjax.experiments.recipes.trees import repeat_last_level
from specjax.experiments.tune.predict import Probe, fit_overhead
from specjax.experiments.tune.trees import (
    TreeOverhead,
    end_loss,
    fastest_trees,
    timed_shapes,
    tree_spec,
)
from specjax.measuring.cost import Costs
from specjax.theory.trees import count_fed_nodes, expected_tokens, tree_improvement

PRICES = Costs(
    {
        "target": {1: 2.0, 2: 2.2, 4: 2.6, 8: 3.4, 16: 5.0, 165: 40.0},
        "drafter": {1: 0.2, 2: 0.3, 4: 0.5, 48: 3.0},
    }
)
RANKS = [[0.6, 0.2, 0.1, 0.0], [0.6, 0.2, 0.0, 0.0], [0.6, 0.1, 0.0, 0.0], [0.5, 0.1, 0.0, 0.0]]


def test_of_every_doubling_the_fastest_tree_that_branches_is_run():
    lost = TreeOverhead(level=0.05, node=0.1, end=0.04)
    found = fastest_trees(PRICES, RANKS, "drafter", 8, "target", lost)
    assert {(len(tree.parents) - 1).bit_length() for tree in found} <= {1, 2, 3} and found
    # The first call feeds two tokens of the text.
    calls = np.array([0.3, 0.2, 0.3, 0.4, 0.5]) / 2.0 + 0.05
    reading = [PRICES.milliseconds("target", n + 1) / 2.0 + 0.1 * n for n in range(9)]
    for tree in found:
        assert max(compute_depths_and_ranks(tree.parents)[1]) > 0
        endless = expected_tokens(repeat_last_level(RANKS), tree.parents)
        assert tree.tokens == pytest.approx(1 / (1 / endless + 0.04 * (1 - 1 / endless)))
        speedup = tree_improvement(repeat_last_level(RANKS), tree.parents, calls, reading)
        assert tree.improvement == pytest.approx(speedup * tree.tokens / endless)


def test_what_the_wide_tree_lost_at_the_ends_of_texts_all_trees_lose():
    assert TreeOverhead(end=end_loss(4.0, 3.2)).tokens(4.0) == pytest.approx(3.2)
    assert TreeOverhead(end=end_loss(4.0, 3.2)).tokens(1.0) == 1.0
    assert TreeOverhead(end=end_loss(4.0, 4.5)).tokens(5.0) == 5.0


def test_the_probes_say_what_a_level_and_a_node_cost_beside_the_calls():
    chain = Probe(Strategy(Neural(4)), rounds([3, 3], [4, 4], calls=8), speedup=1.0)
    wide_tree = Strategy(Neural(widths=(2, 1)))
    ranks = {"rate": [[0.5, 0.5], [1.0, 0.0]]}
    wide = Probe(wide_tree, rounds([3, 1], [4, 4], calls=4), speedup=0.4, by_rank=ranks)
    found = fit_overhead(PRICES, chain, wide, "target")
    level = (3.0 - (0.3 + 3 * 0.2) / 2.0 - 2.8 / 2.0) / 4
    assert found.level == pytest.approx(level)
    assert found.node == pytest.approx((2.0 / 0.4 - (0.3 + 0.3) / 2.0 - 1.4 - 2 * level) / 4)
    assert found.end == pytest.approx((1 / 2 - 1 / 3) / (1 - 1 / 3))


def test_two_chains_tell_what_a_round_costs_from_what_a_level_does():
    """Beyond its calls a round takes 0.8 target steps and each token 0.1."""

    def chain(length: int, shorter: Probe | None = None) -> Probe:
        seen = rounds([2, 2], [length, length], calls=2 * length)
        calls = (0.3 + (length - 1) * 0.2) / 2.0 + PRICES.milliseconds("target", length + 1) / 2.0
        speedup = 2.0 / (calls + 0.8 + 0.1 * length)
        return Probe(Strategy(Neural(length)), seen, speedup, shorter=shorter)

    ranks = {"rate": [[0.5, 0.5], [1.0, 0.0]]}
    tree = Strategy(Neural(widths=(2, 1)))
    took = (0.3 + 0.3) / 2.0 + 1.4 + 0.8 + 2 * 0.1 + 4 * 0.05
    wide = Probe(tree, rounds([3, 1], [4, 4], calls=4), speedup=2.0 / took, by_rank=ranks)
    found = fit_overhead(PRICES, chain(4, chain(1)), wide, "target")
    assert (found.round_, found.level, found.node) == pytest.approx((0.8, 0.1, 0.05))
    fast = fastest_trees(PRICES, RANKS, "drafter", 8, "target", TreeOverhead(round_=0.8))
    free = fastest_trees(PRICES, RANKS, "drafter", 8, "target", TreeOverhead())
    assert max(t.improvement for t in fast) < max(t.improvement for t in free)


def test_trees_are_drafted_and_judged_as_the_chains_are():
    chain = neural_spec("small", 3, temperature=0.7, top_k=5, rule="block", reader="fitted")
    assert tree_spec(chain, parents=(-1, -1)) == {
        "drafter": "neural", "parents": (-1, -1), "model": "small", "temperature": 0.7,
        "top_k": 5, "rule": "traversal",
    }  # fmt: skip


def test_trees_of_all_sizes_can_be_priced():
    for nodes in (2, 3, 8, 32, 128):
        shapes = timed_shapes(nodes)
        assert max(map(len, shapes)) >= nodes
        assert max(count_fed_nodes(shapes[-1])) >= nodes // 2
