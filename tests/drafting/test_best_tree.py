"""Trees of the most probable nodes of independent distributions: those of an exhaustive search."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs
from feature_drafters import setting

from specjax.decoding.strategy import Strategy
from specjax.drafting.block import _best_tree
from specjax.drafting.dflash import DFlash, DSpark
from specjax.models.dflash import DFlash as Model

V, DEPTH, SETS = 4, 3, 60


@pytest.fixture(scope="module")
def context():
    """The rows of a greedy decode before its first round, as many as there are sets."""
    models, params = setting("llama", Model)
    strategy = Strategy(DFlash(2), temperature=0.0)
    made = decoder(models, strategy, 14)
    given = inputs([[3, 4, 1]] * SETS, 14)
    return first_state(made, params, *given, strategy.options()).context


def exhaustive(q: np.ndarray, count: int) -> float:
    """The summed probability of the `count` most probable paths of distributions [D, V]."""
    paths = (
        np.prod([q[depth, token] for depth, token in enumerate(path)])
        for length in range(1, DEPTH + 1)
        for path in itertools.product(range(V), repeat=length)
    )
    return sum(sorted(paths, reverse=True)[:count])


@pytest.mark.parametrize("count", [1, 3, 6, 12, 30])
def test_its_nodes_are_those_of_an_exhaustive_search(count, context):
    rng = np.random.default_rng(count)
    logits = np.float32(2.0 * rng.normal(size=(SETS, DEPTH, V)))
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
