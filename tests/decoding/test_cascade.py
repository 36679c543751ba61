"""Cascades: greedy identity, the law of sampled outputs, and counted calls."""

from __future__ import annotations

import dataclasses
import itertools
import os

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from scripted import (
    PrefixModel,
    ScriptModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.decoding.strategy import Strategy
from specjax.drafting.cascade import Horizontal, ReviewedDrafter, Stage
from specjax.drafting.matrix import GREEDY, SAMPLED, Cascade
from specjax.drafting.ngram import Bigram
from specjax.training.ngram import fit
from specjax.verification.fitted import FittedReader
from specjax.verification.lenient import Lenient
from specjax.verification.speculative_sampling import SpeculativeSampling

V, LIMIT, EOS = 7, 12, 1
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = tuple((name, MODEL) for name in ("target", "large", "middle", "small"))
PROMPTS = [[3, 2, 4, 2], [5], [6, 2, 6], [2, 2], [4, 5, 6], [3, 3, 3]]


def like(params, seed: int, noise: float):
    """Weights near those of another model: most of its drafts stand."""
    other = prefix_params(V, seed)
    return {name: value + noise * other[name] for name, value in params.items()}


TARGET = prefix_params(V, seed=1)
PARAMS = {
    "target": TARGET,
    "large": like(TARGET, 2, 0.15),
    "middle": like(TARGET, 3, 0.3),
    "small": like(TARGET, 4, 0.5),
    "ngram": fit([[2, 3, 4, 1], [3, 3, 2, 5, 6], [4, 2, 0, 1]], V, start_token=0),
}


CASCADES = int(os.environ.get("SPECJAX_CASCADES", "24"))
"""Seeds, each of which compiles a program of its own; all 200 take a quarter of an hour."""


def cascade(drafters, matrix, lenience=None, reviewers=SAMPLED, branches=1) -> Horizontal:
    """The drafter that a matrix means."""
    matrix = tuple(map(tuple, matrix))
    fields = {"lenience": lenience, "reviewers": reviewers, "branches": branches}
    return Cascade(tuple(drafters), matrix, **fields).combined


def random_cascade(seed: int) -> Horizontal:
    """A cascade of one to three drafters with entries of K up to 3."""
    rng = np.random.default_rng(seed)
    names = [name for name, _ in MODELS[1:]][: rng.integers(1, 4)]
    if rng.random() < 0.6:
        names[-1] = str(rng.choice(["max_gram", "prompt_lookup", "bigram", "unigram"]))
    matrix = np.triu(rng.integers(0, 4, (len(names), len(names))))
    matrix[0, rng.integers(len(names))] += 1  # something is drafted
    lenience = "lenience" if rng.random() < 0.7 else None
    how = GREEDY if rng.random() < 0.3 else SAMPLED
    return cascade(names, matrix.tolist(), lenience, how)


def random_settings(seed: int):
    """A lenience, and drafters from all but equal to the target to unlike it."""
    rng = np.random.default_rng([seed, 1])
    drafters = {
        name: like(TARGET, int(rng.integers(100)), rng.uniform(0.01, 1.0)) for name, _ in MODELS[1:]
    }
    return rng.uniform(0.01, 1.0), {**PARAMS, **drafters}


@pytest.fixture(scope="module")
def alone():
    return texts(run(MODELS, PARAMS, Strategy(), PROMPTS, LIMIT))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASCADES))
def test_a_greedy_cascade_says_what_the_target_says(seed, alone):
    drafter = random_cascade(seed)
    for each in range(4):  # the same program
        lenience, params = random_settings(4 * seed + each)
        strategy = Strategy(drafter, numbers=(("lenience", lenience),))
        assert texts(run(MODELS, params, strategy, PROMPTS, LIMIT)) == alone


@pytest.mark.slow
def test_the_target_may_look_no_further_than_the_draft(alone):
    drafter = cascade(("large", "small"), ((2, 0), (0, 2)), "lenience")
    strategy = Strategy(
        drafter, numbers=(("lenience", 0.2),), reader=FittedReader().adapt_to(drafter.spec, None)
    )
    assert texts(run(MODELS, PARAMS, strategy, PROMPTS, LIMIT)) == alone


SOURCE, LENGTH, ROWS = (3, 2, 4, 2), 3, 20_000
SETTINGS = {"plain": (1.0, 0, 1.0), "truncated": (0.7, 4, 0.9)}
NESTED = {
    "neural": (("large", "middle", "small"), ((1, 1, 0), (0, 1, 1), (0, 0, 1))),
    "max_gram": (("large", "small", "max_gram"), ((2, 0, 1), (0, 1, 1), (0, 0, 2))),
    "bigram": (("large", "small", "bigram"), ((2, 0, 0), (0, 1, 0), (0, 0, 1))),
}
TREES = {
    "bigram": (("large", "bigram"), ((2, 0), (0, 2))),
    "copies": (("large", "small", "prompt_lookup"), ((2, 1, 0), (0, 1, 0), (0, 0, 3))),
}
"""Cascades whose last drafter gives its reviewer trees."""
P_VALUE = 1e-3  # 13 fixed-seed tests: a right law fails one of them with probability 0.013


def p_value(drafter: Horizontal, settings, lenience: float = 0.3) -> float:
    distribution = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, settings)
    numbers = (("lenience", lenience),)
    strategy = Strategy(drafter, SpeculativeSampling(), *settings, numbers)
    out = run(MODELS, PARAMS, strategy, [SOURCE] * ROWS, LENGTH, seed=7)
    return chi_square(count_outputs(texts(out)), distribution)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "nested, lenience, settings",
    [
        slow("bigram", "lenience", "plain"),
        slow("bigram", None, "plain"),
        *(
            slow(*case)
            for case in itertools.product(("neural", "max_gram"), (None, "lenience"), SETTINGS)
        ),
    ],
)
def test_sampling_through_two_levels_keeps_the_target_law(nested, lenience, settings):
    assert p_value(cascade(*NESTED[nested], lenience), SETTINGS[settings]) > P_VALUE


@pytest.mark.parametrize(
    "nested, settings",
    [
        slow("bigram", "plain"),
        slow("bigram", "truncated"),
        slow("copies", "plain"),
        slow("copies", "truncated"),
    ],
)
def test_a_reviewed_tree_keeps_the_target_law(nested, settings):
    assert p_value(cascade(*TREES[nested], branches=2), SETTINGS[settings]) > P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize("nested", ["bigram", "copies"])
def test_a_greedy_cascade_of_trees_says_what_the_target_says(nested, alone):
    out = run(MODELS, PARAMS, Strategy(cascade(*TREES[nested], branches=2)), PROMPTS, LIMIT)
    assert texts(out) == alone


@dataclasses.dataclass(frozen=True)
class SaysTheFirstNodesLaws(ReviewedDrafter):
    """Wrong on purpose: hands on what follows the first nodes, whichever stood."""

    def _make_passed_draft(self, draft, reading, verdict, length, options):
        handed = draft, reading, verdict, length, options
        first = jnp.broadcast_to(jnp.arange(draft.width), verdict.path.shape)
        wrong = super()._make_passed_draft(*handed[:2], verdict.replace(path=first), *handed[3:])
        return super()._make_passed_draft(*handed).replace(distribution=wrong.distribution)


@pytest.mark.slow
def test_a_reviewer_that_says_another_nodes_law_fails_the_same_test():
    drafter = Horizontal((Stage(SaysTheFirstNodesLaws("small", Bigram(widths=(6,))), 2),))
    assert p_value(drafter, SETTINGS["plain"]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("nested", NESTED)
def test_greedy_reviewers_keep_the_target_law(nested):
    drafter = cascade(*NESTED[nested], "lenience", GREEDY)
    assert p_value(drafter, SETTINGS["plain"]) > P_VALUE


@dataclasses.dataclass(frozen=True)
class SaysItsOwnLaw(Lenient):
    """Wrong on purpose: lets tokens through leniently and says that they have the model's law."""

    def distribution(self, draft, reading, options):
        strict = options.replace(numbers={**options.numbers, self.lenience: jnp.ones(())})
        return super().distribution(draft, reading, strict)


def with_rule(drafter, rule):
    """The same cascade under another inner rule."""
    if isinstance(drafter, Horizontal):
        stages = tuple(
            dataclasses.replace(stage, drafter=with_rule(stage.drafter, rule))
            for stage in drafter.stages
        )
        return dataclasses.replace(drafter, stages=stages)
    if isinstance(drafter, ReviewedDrafter):
        return dataclasses.replace(drafter, inner=with_rule(drafter.inner, rule), rule=rule)
    return drafter


@pytest.mark.slow
@pytest.mark.parametrize("nested", ["bigram", "neural"])
def test_a_lenient_reviewer_that_says_its_own_law_fails_the_same_test(nested):
    drafter = with_rule(cascade(*NESTED[nested], "lenience"), SaysItsOwnLaw(relative=True))
    assert p_value(drafter, SETTINGS["plain"]) < 1e-6


TEXT = (5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8)


def script(drafter: Horizontal, limit: int = 12, **scripts):
    """A decode of models that say their scripts, by default the target's text."""
    names = ("target", "base", "small")
    models = tuple((name, ScriptModel(scripts.get(name, TEXT))) for name in names)
    return run(models, dict.fromkeys(names, {}), Strategy(drafter), [[3]], limit)


def calls(generation) -> dict[str, int]:
    return {name: int(count[0]) for name, count in generation.trace.calls.items()}


def test_calls_of_a_vertical_cascade_that_always_agrees():
    # small gives base two tokens, base adds one; twice is five or more: six, and the target's.
    out = script(cascade(("base", "small"), ((5, 0), (0, 2))), limit=14)
    assert texts(out) == [[*TEXT, 2, 2]]
    # A whole draft that stood leaves small three tokens behind, one more than it is fed: a ninth.
    assert calls(out) == {"target": 2, "base": 4, "small": 9}
    assert out.trace.written_by[0, 1:8].tolist() == [2, 2, 3, 2, 2, 3, 1]


def test_calls_of_a_horizontal_cascade_that_always_agrees():
    out = script(cascade(("base", "small"), ((2, 3), (0, 0))), limit=12)
    assert texts(out) == [list(TEXT)]
    assert calls(out)["target"] == 2
    assert out.trace.written_by[0, 1:7].tolist() == [2, 2, 3, 3, 3, 1]


@pytest.mark.slow
def test_a_reviewer_replaces_what_its_drafter_gets_wrong():
    wrong = (5, 9, 7, 8, 5, 6, 7, 8)
    out = script(cascade(("base", "small"), ((3, 0), (0, 3))), limit=8, small=wrong)
    assert texts(out) == [list(TEXT[:8])]
    assert out.trace.written_by[0, 1:3].tolist() == [2, 3]  # 5 by small, 6 by base
    assert int(out.trace.accepted[0, 0]) == int(out.trace.drafted[0, 0])
