"""How often nodes stood, by depth and rank: counted by hand, and of a decode."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from decodes import run
from scripted import PrefixModel, prefix_params

from specjax.contracts.tree import build_regular_tree
from specjax.decoding.strategy import strategy
from specjax.metrics.trees import by_rank
from specjax.theory.trees import expected_tokens

PARENTS = (-1, -1, 0, 0, 1)  # 0 and 1; behind 0 are 2 and 3, behind 1 is 4


def test_nodes_are_counted_that_hang_on_one_that_stood():
    nodes = [5, 6, 7, 8, 9]
    trace = SimpleNamespace(
        accepted=np.array([[2, 0, 1, 1, 0]]),
        committed=np.array([[3, 1, 2, 1, 0]]),
        proposed=np.array([[nodes] * 5]),
    )
    #                    prompt  5 and 8     nothing  6   6 and the row ends
    tokens = np.array([[0, 0, 5, 8, 3, 4, 6, 2, 6]])
    made = SimpleNamespace(trace=trace, tokens=tokens, begin=np.array([2]))
    found = by_rank([(made, 1)], PARENTS)
    assert found["tried"] == [[4, 4], [2, 1]]  # behind 6 there is one child
    assert found["stood"] == [[1, 2], [0, 1]]
    np.testing.assert_allclose(found["rate"], [[0.25, 0.5], [0.0, 1.0]])


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_a_decode_all_that_stood_is_counted(temperature):
    size, rows = 6, 200
    model = dataclasses.replace(PrefixModel(size), start_token=None)
    weights = prefix_params(size, seed=1)
    near = jax.tree.map(lambda x, y: x + 0.1 * y, weights, prefix_params(size, seed=2))
    models, params = (("target", model), ("drafter", model)), {"target": weights, "drafter": near}
    tree = strategy(drafter="neural", widths=(3, 2), temperature=temperature)
    prompts = np.random.default_rng(0).integers(0, size, (rows, 3)).tolist()
    out = run(models, params, tree, prompts, 20)
    made = jax.device_get(dataclasses.replace(out, memory=()))
    found = by_rank([(made, rows)], tree.drafter.spec.parents)
    assert np.sum(found["stood"]) == np.sum(made.trace.accepted) > rows
    rounds = made.trace.committed > 0
    ended = rounds & (made.trace.committed == made.trace.accepted)
    assert found["tried"][0][0] == rounds.sum() - (ended & (made.trace.accepted == 0)).sum()
    expected = expected_tokens(found["rate"], build_regular_tree((3, 2))[0])
    assert expected == pytest.approx(made.trace.committed[rounds].mean(), rel=0.05)
