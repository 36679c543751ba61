"""Trees of fitted counts: which tokens they hold, the target's own text and distribution."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from scripted import PrefixModel, chi_square, count_outputs, prefix_params, sequence_distribution

from specjax.contracts.env import Env
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.ngram import Bigram, bigram_logits, successors
from specjax.training.ngram import fit

V, LENGTH, ROWS, SOURCE = 5, 3, 20_000, (3, 2, 4, 2)
TABLE = fit([[2, 3, 4, 1], [3, 3, 2, 1], [4, 2, 0, 1]], V, start_token=0)
MODEL = PrefixModel(V, eos=(1,))
PARAMS = {"target": prefix_params(V, seed=1), "ngram": TABLE}


def test_children_are_the_likeliest_successors_and_all_different():
    previous = jnp.arange(V)
    found = np.asarray(successors(TABLE, previous[None], V))[0]
    distribution = np.asarray(bigram_logits(TABLE, previous))
    assert found[:, 0].tolist() == TABLE["best"].tolist()
    for token in range(V):
        assert sorted(found[token]) == list(range(V))
        assert (np.diff(distribution[token][found[token]]) <= 0).all()


def test_behind_the_seen_ones_come_the_most_frequent_tokens():
    table = fit([[0, 3, 2, 3, 3, 2, 4]], 6)  # 3 three times, 2 twice, 0 and 4 once, 1 and 5 never
    assert successors(table, jnp.array([[2, 5]]), 4).tolist() == [[[3, 4, 2, 0], [3, 2, 0, 4]]]


@pytest.mark.slow
def test_a_tree_stands_deeper_than_its_likeliest_chain():
    prompts = np.random.default_rng(0).integers(2, V, (64, 3)).tolist()
    models = (("target", MODEL),)
    baseline = run(models, PARAMS, Strategy(), prompts, 12)
    params = {**PARAMS, "ngram": fit(texts(baseline), V, start_token=0)}
    stood = []
    for widths in ((1, 1), (3, 2)):
        out = run(models, params, strategy(drafter="bigram", widths=widths), prompts, 12)
        assert texts(out) == texts(baseline)
        stood.append(int(out.trace.accepted.sum()))
    assert stood[1] > stood[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"parents": (-1, 0, -1, 1, 0)}, {"widths": (3, 2)}])
@pytest.mark.parametrize("settings", [(1.0, 0, 1.0), (0.7, 4, 0.9)])
def test_sampling_keeps_the_targets_distribution(given, settings):
    """Beside the contract's test of the registered example."""
    temperature, top_k, top_p = settings
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    made = strategy(drafter="bigram", **given, **drawn)
    distribution = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, settings)
    out = run((("target", MODEL),), PARAMS, made, [SOURCE] * ROWS, LENGTH, seed=7)
    assert int(out.trace.accepted.sum()) > 0
    assert chi_square(count_outputs(texts(out)), distribution) > 1e-3


def test_more_children_than_tokens_are_refused():
    env = Env({"target": {}, "ngram": TABLE}, (("target", MODEL),))
    with pytest.raises(ValueError, match="widths gives a node 9 children; .* are tokens, 5$"):
        Bigram(widths=(9,)).check(env)
