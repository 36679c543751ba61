"""Horizontal cascades found by the search, beside the optimum of Theorem 4.4."""

from __future__ import annotations

import numpy as np
import pytest
from decodes import run
from scripted import ScriptModel

from specjax.decoding.strategy import Strategy
from specjax.drafting.matrix import Cascade
from specjax.experiments.tune.trials import SWI, Trial, drop_worse
from specjax.measuring.cost import standardized_walltime_improvement
from specjax.theory.cascade import horizontal_ewif, optimal_horizontal

TOKENS, LONGEST = 3000, 5
ALPHAS = {"middle": 0.9, "small": 0.6}
PRICES = {"target": 1.0, "middle": 0.15, "small": 0.01}
COSTS = PRICES["middle"], PRICES["small"]


@pytest.fixture(scope="module")
def models():
    """Two drafters that are right at every position independently, at the rates of ALPHAS."""
    rng = np.random.default_rng(0)
    text = rng.integers(2, 9, TOKENS)
    scripts = {
        name: np.where(rng.random(TOKENS) < alpha, text, 9) for name, alpha in ALPHAS.items()
    }
    scripts["target"] = text
    return tuple((name, ScriptModel(tuple(script.tolist()))) for name, script in scripts.items())


def trial(models, split: tuple[int, int]) -> Trial:
    """One decode of the whole text, and what its calls come to."""
    strategy = Strategy(Cascade(tuple(ALPHAS), (split, (0, 0))))
    out = run(models, {name: {} for name, _ in models}, strategy, [[3]], TOKENS)
    calls = {part: int(count[0]) for part, count in out.trace.calls.items()}
    swi = standardized_walltime_improvement(TOKENS, calls, PRICES, "target")
    return Trial({"split": split}, calls=calls, swi=swi)


@pytest.mark.slow
def test_the_search_finds_the_allocation_of_theorem_4_4(models):
    """By SWI at measured acceptance and given prices, over all splits of up to LONGEST tokens."""
    splits = [(i, n - i) for n in range(1, LONGEST + 1) for i in range(n + 1)]
    trials = {str(split): trial(models, split) for split in splits}
    drop_worse(trials, SWI, 1, "round 1")
    (found,) = (each for each in trials.values() if not each.dropped)
    said = dict(models)
    alphas = [np.mean(np.equal(said[name].script, said["target"].script)) for name in ALPHAS]
    best, value = optimal_horizontal(alphas, COSTS, LONGEST)
    assert all(best)  # a case in which both drafters have a place
    assert horizontal_ewif(alphas, COSTS, found.fields["split"]) > 0.99 * value
    for each in trials.values():
        expected = float(horizontal_ewif(alphas, COSTS, each.fields["split"]))
        assert each.swi == pytest.approx(expected, rel=0.03)
