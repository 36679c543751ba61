"""Sampled trees of a nearly certain drafter keep the target's distribution."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from scripted import PrefixModel, chi_square, count_outputs, prefix_params, sequence_distribution

from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.neural import Neural

V, ROWS, LENGTH, SOURCE = 6, 20_000, 2, (3, 2, 4, 2)
TARGET = PrefixModel(V)
LEAST = 1e-4
"""Of a p-value, of which there are six here."""
TREE = {"drafter": "neural", "widths": (3, 2), "temperature": 1.0}


@dataclasses.dataclass(frozen=True)
class Certain(PrefixModel):
    """Its output layer favors one token by the parameter `margin`."""

    def extend(self, params, *given, **how):
        output, cache = super().extend(params, *given, **how)
        favored = params["margin"] * jax.nn.one_hot(2, V)
        return output.replace(logits=output.logits + favored), cache


def p_value(made: Strategy, digits: int) -> float:
    """Of texts where q(top) is about 1 - 10^-digits and the target's tokens are nearly alike."""
    margin = jnp.float32((digits + np.log10(V - 1)) * np.log(10.0))
    drafter = {**prefix_params(V, seed=2, scale=0.1), "margin": margin}
    params = {"target": prefix_params(V, seed=1, scale=0.5), "drafter": drafter}
    distribution = sequence_distribution(
        TARGET, params["target"], SOURCE, (0,), LENGTH, made.settings
    )
    models = (("target", TARGET), ("drafter", Certain(V)))
    out = run(models, params, made, [SOURCE] * ROWS, LENGTH, seed=7)
    assert int(out.trace.accepted.sum()) > 0
    return chi_square(count_outputs(texts(out)), distribution)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["lossless", "traversal"])
@pytest.mark.parametrize("digits", [6, 9])
def test_its_trees_keep_the_targets_distribution(rule, digits):
    assert p_value(strategy(**TREE, rule=rule), digits) > LEAST


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "temperature"), [("lossless", 0.5), ("block", 1.0)])
def test_its_chains_keep_it_too(rule, temperature):
    made = strategy(drafter="neural", length=2, rule=rule, temperature=temperature)
    assert p_value(made, 9) > LEAST


@dataclasses.dataclass(frozen=True)
class DifferenceOfSums(Neural):
    """Wrong on purpose: the mass that is left is all less what was drawn, which cancels."""

    def propose(self, env, caches, memory, context, keys):
        draft, *others = super().propose(env, caches, memory, context, keys)
        distribution = draft.distribution
        own = jnp.take_along_axis(distribution.probs, distribution.drawn, axis=-1)
        whole = jnp.sum(distribution.probs, axis=-1, keepdims=True)
        wrong = distribution.replace(remaining=whole - jnp.cumsum(own, axis=-1) + own)
        return draft.replace(distribution=wrong), *others


@pytest.mark.slow
def test_a_mass_that_is_a_difference_of_sums_does_not_keep_it():
    assert p_value(Strategy(DifferenceOfSums(widths=(3, 2)), temperature=1.0), 9) < 1e-6
