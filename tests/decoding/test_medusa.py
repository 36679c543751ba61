"""Trees of parallel heads: the target's own text, its distribution, and what is refused."""

from __future__ import annotations

import pytest
from decodes import run, texts
from exits import MODELS, PARAMS, PROMPTS
from parallel_heads import random_heads
from scripted import (
    WIDTH,
    PrefixModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.contracts.env import Env
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.medusa import Medusa
from specjax.selection.strategies import make_switched
from specjax.verification.whole import TreeReader, WholeReader

LIMIT, ROWS = 12, 20_000
SOURCE = (3, 2, 4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_tree_writes_the_targets_own_text_in_fewer_rounds(kind):
    models = (("target", MODELS[kind]), ("drafter", MODELS[kind]))
    heads = random_heads(2, MODELS[kind].config.d_model, seed=1, scale=0.02)
    params = {"target": PARAMS[kind], "drafter": PARAMS[kind], "heads": heads}
    baseline = run(models, params, strategy(), PROMPTS, LIMIT)
    tree = run(models, params, strategy(drafter="medusa", widths=(4, 3)), PROMPTS, LIMIT)
    assert texts(tree) == texts(baseline)
    assert tree.trace.rounds < baseline.trace.rounds


SHAPES = {"widths": {"widths": (3, 2)}, "parents": {"parents": (-1, 0, -1, -1, 1, 0)}}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", [(1.0, 0, 1.0), (0.7, 3, 0.9)])
def test_a_wider_tree_keeps_the_targets_distribution(settings, shape):
    """As the contract's test of every registered drafter, with siblings at every level."""
    model = PrefixModel(5, eos=(1,))
    params = {
        "target": prefix_params(5, seed=1),
        "drafter": prefix_params(5, seed=2, scale=0.7),
        "heads": random_heads(3, WIDTH, seed=3),
    }
    temperature, top_k, top_p = settings
    tree = strategy(
        drafter="medusa", **SHAPES[shape], temperature=temperature, top_k=top_k, top_p=top_p
    )
    distribution = sequence_distribution(model, params["target"], SOURCE, (0,), 3, settings)
    models = (("target", model), ("drafter", model))
    out = run(models, params, tree, [SOURCE] * ROWS, 3, seed=7)
    assert chi_square(count_outputs(texts(out)), distribution) > 1e-3


def test_nodes_are_counted_level_by_level():
    assert Medusa(widths=(3, 2, 1)).spec.width == 3 + 6 + 6
    assert Medusa(widths=(3, 2, 1)).spec.calls[0].logits == 3


def test_a_shape_may_be_given_by_its_parents():
    whole = Medusa(parents=(-1, -1, 0, 0, 1, 1))
    assert whole.spec == Medusa(widths=(2, 2)).spec
    assert Medusa(parents=(-1, 0, -1, 1)).spec.parents == (-1, -1, 0, 2)
    assert Medusa(parents=(-1, 0, -1, 1)).depth == 3


@pytest.mark.parametrize(
    ("widths", "count", "said"),
    [
        ((2, 1, 1), 2, r"widths is \(2, 1, 1\), of 3 levels; 'heads' holds 2 heads, so it must be"),
        ((20, 1), 2, "widths gives a node 20 children; .* as there are tokens, 12$"),
    ],
)
def test_trees_that_no_heads_fill_are_refused(widths, count, said):
    model = MODELS["t5"]
    heads = random_heads(count, model.config.d_model, seed=1)
    models = (("target", model), ("drafter", model))
    env = Env({"target": {}, "drafter": {}, "heads": heads}, models)
    with pytest.raises(ValueError, match=said):
        Medusa(widths=widths).check(env)


def test_rules_that_know_chains_only_are_refused():
    with pytest.raises(
        ValueError, match="rule is 'typical'; drafts that are trees need lossless or traversal$"
    ):
        strategy(drafter="medusa", widths=(2,), rule="typical", temperature=1.0)


def test_a_reader_of_chains_is_refused():
    with pytest.raises(
        ValueError, match=r"reader is WholeReader\(.*must be one of trees, as the drafts"
    ):
        Strategy(Medusa(widths=(2,)), reader=WholeReader())
    with pytest.raises(ValueError, match="it must be one of chains"):
        Strategy(reader=TreeReader())


def test_a_tree_is_no_arm():
    arms = {"alone": strategy(), "tree": strategy(drafter="medusa", widths=(2,))}
    with pytest.raises(ValueError, match="arm 'tree' drafts trees; arms must"):
        make_switched(arms, (0.0, 0.1))


def test_a_tree_is_not_read_by_calls_of_one_width():
    tree = strategy(drafter="medusa", widths=(2,))
    with pytest.raises(ValueError, match=r"invariant is 8; it must be 0 \(off\) for trees"):
        tree.decoder((("target", MODELS["t5"]), ("drafter", MODELS["t5"])), LIMIT, invariant=8)
