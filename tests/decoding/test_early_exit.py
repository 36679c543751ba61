"""Drafting with the target's own first layers: exact outputs, batches, counts and refusals."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from decodes import texts
from exits import BOTH, DEPTH, MODELS, PARAMS, PROMPTS, Uncached, decode, sixteen_prompts
from scripted import chi_square, count_outputs, sequence_distribution

import specjax
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy
from specjax.drafting.adaptive_length import BREAK_EVEN
from specjax.drafting.bild import Bild
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.verification.fitted import FittedReader
from specjax.verification.speculative_sampling import SpeculativeSampling
from specjax.verification.whole import ResumedReader

LIMIT = 14


def bild(fallback: float, rollback: float, **how) -> Strategy:
    how |= {"fallback": fallback, "rollback": rollback}
    return specjax.strategy(drafter="bild", exit=1, **how)


STRATEGIES = {
    "fixed": Strategy(EarlyExit(3, exit=2)),
    "confidence": Strategy(
        EarlyExit(4, exit=1, confidence="confidence"), numbers=(("confidence", 0.3),)
    ),
    "drafted": Strategy(
        EarlyExit(4, exit=1, adapt=BREAK_EVEN),
        numbers=(("cost", 0.2),),
        reader=FittedReader((1, 3, 4), ResumedReader(1)),
    ),
    # Every token that is not the target's own is dropped.
    "bild": bild(0.3, 0.0, length=4, verify_eos=True),
}


@functools.cache
def decode_uncached(kind: str) -> list[list[int]]:
    """Greedy tokens of the whole model."""
    return [Uncached(kind).greedy(prompt, LIMIT) for prompt in PROMPTS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("name", STRATEGIES)
def test_greedy_tokens_are_those_of_the_uncached_model(kind, name):
    generation = decode(kind, STRATEGIES[name])
    assert texts(generation) == decode_uncached(kind)
    assert 0 < np.sum(generation.trace.accepted) < np.sum(generation.trace.drafted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_without_fallback_and_rollback_bild_writes_what_its_first_layer_would(kind):
    generation = decode(kind, bild(0.0, np.inf, length=LIMIT))
    small = Uncached(kind, exit=1)
    assert texts(generation) == [small.greedy(prompt, LIMIT) for prompt in PROMPTS]
    assert np.sum(generation.trace.calls["target"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_sampled_tokens_keep_the_law_of_the_uncached_model(kind):
    prompt, settings = [3, 4, 5], (1.2, 0, 1.0)
    source, head = (prompt, (0,)) if kind == "t5" else ((), tuple(prompt))
    distribution = sequence_distribution(Uncached(kind), PARAMS[kind], source, head, 2, settings)
    strategy = dataclasses.replace(Strategy(EarlyExit(2, exit=1)), temperature=1.2)
    found = texts(decode(kind, strategy, [prompt] * 20_000, limit=3))
    assert chi_square(count_outputs([row[:2] for row in found]), distribution) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_row_does_not_depend_on_its_batch(temperature):
    prompts = sixteen_prompts()
    strategy = dataclasses.replace(Strategy(EarlyExit(3, exit=1)), temperature=temperature)
    together = texts(decode("t5", strategy, prompts))
    for count in (1, 4):
        assert texts(decode("t5", strategy, prompts[:count])) == together[:count]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [("fixed", "target[:2]"), ("confidence", "target[:1]")])
def test_the_exit_runs_once_on_every_token_that_the_target_reviews(name, part):
    trace = decode("t5", STRATEGIES[name]).trace
    exits, states = trace.calls[part], trace.calls[f"{part} states"]
    rounds, drafted = (np.asarray(trace.committed) > 0).sum(axis=1), trace.drafted.sum(axis=1)
    np.testing.assert_array_equal(trace.calls["target"], rounds)
    # The pending token and the drafts, each once.
    np.testing.assert_array_equal(exits + states, rounds + drafted)
    assert np.all(np.asarray(states) <= rounds) and np.sum(states) > 0


@pytest.mark.parametrize(
    ("drafter", "named"),
    [
        (EarlyExit(2, exit=DEPTH), "exit is 3; it must be from 1 to 2, below the 3 decoder"),
        (Bild(2, "drafter", exit=1), "exit is 1 of model 'drafter'; only 'target'"),
        (Neural(2, "target"), "the drafter's model is 'target'"),
    ],
)
def test_exits_that_cannot_be_are_refused(drafter, named):
    models = (("target", MODELS["t5"]), ("drafter", MODELS["t5"]))
    with pytest.raises(ValueError, match=named):
        Decoder(models, drafter, SpeculativeSampling(), 4)
