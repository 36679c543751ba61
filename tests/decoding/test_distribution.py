"""Lossless decoding keeps the target's law: chi-square against the enumerated outputs."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from parallel_heads import random_heads
from scripted import (
    WIDTH,
    PrefixModel,
    adjust_probabilities,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

import specjax
from specjax.contracts.distribution import Categorical, pick
from specjax.contracts.rule import make_verdict
from specjax.decoding.strategy import Strategy
from specjax.drafting.adaptive_length import ACCEPTANCE, BREAK_EVEN, FIXED
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.ngram import Bigram
from specjax.drafting.nothing import Nothing
from specjax.sampling import adjust, draw
from specjax.training.ngram import fit
from specjax.verification.fitted import FittedReader
from specjax.verification.speculative_sampling import SpeculativeSampling, match_by_sampling

V, LENGTH = 5, 3
EOS = 1
SOURCE = (3, 2, 4, 2)
MODEL = PrefixModel(V, eos=(EOS,))
PARAMS = {
    "target": prefix_params(V, seed=1),
    "drafter": prefix_params(V, seed=2, scale=0.7),
    "ngram": fit([[2, 3, 4, 1], [3, 3, 2, 1], [4, 2, 0, 1]], V, start_token=0),
    "heads": random_heads(2, WIDTH, seed=3),
}
MODELS = (("target", MODEL), ("drafter", MODEL))
DRAFTERS = {
    "neural": Neural(2),
    "confidence": Neural(3, confidence="confidence"),
    "entropy": Neural(3, entropy="entropy"),
    "blockwise_entropy": Medusa(2, entropy="entropy"),
    "acceptance": Neural(3, adapt=ACCEPTANCE),
    "break_even": Neural(3, adapt=BREAK_EVEN),
    "blockwise": Medusa(2),
    "bigram": Bigram(2),
    "prompt_lookup": PromptLookup(2),
    "max_gram": MaxGram(2),
    "max_gram_no_table": MaxGram(2, table=None),
}
SETTINGS = {"plain": (1.0, 0, 1.0), "truncated": (0.7, 4, 0.9)}
P_VALUE = 1e-3  # of fixed-seed tests: a right law fails one of ten with probability 0.01
CASES = [
    # What the contract's test of every registered drafter does not have: truncation ...
    ("truncated", "neural"),
    *(
        pytest.param(*pair, marks=pytest.mark.slow)
        for pair in (
            *(("truncated", name) for name in ("max_gram", "blockwise", "break_even", "bigram")),
            # ... and drafts whose length is decided on the way.
            *(("plain", name) for name in ("confidence", "acceptance", "break_even")),
            *(("plain", name) for name in ("entropy", "blockwise_entropy")),
            ("plain", "max_gram_no_table"),
        )
    ),
]


def p_value(strategy: Strategy, rows: int) -> float:
    distribution = sequence_distribution(
        MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, strategy.settings
    )
    out = run(MODELS, PARAMS, strategy, [SOURCE] * rows, LENGTH, seed=7)
    return chi_square(count_outputs(texts(out)), distribution)


def strategy(drafter, rule, settings) -> Strategy:
    temperature, top_k, top_p = settings
    numbers = (("confidence", 0.45), ("entropy", 1.3), ("cost", 0.3), ("verification", 0.1))
    reader = (
        FittedReader().adapt_to(drafter.spec, None)
        if getattr(drafter, "adapt", FIXED) != FIXED
        else None
    )
    return Strategy(drafter, rule, temperature, top_k, top_p, numbers, reader)


@pytest.mark.parametrize(("settings", "drafter"), CASES)
def test_speculative_sampling_keeps_the_target_law(settings, drafter, rows):
    made = strategy(DRAFTERS[drafter], SpeculativeSampling(), SETTINGS[settings])
    assert p_value(made, rows) > P_VALUE


@pytest.mark.slow
def test_decoder_only_rows_keep_the_target_law(rows):
    model = dataclasses.replace(MODEL, start_token=None)
    prompt = (3, 2, 3)
    distribution = sequence_distribution(
        model, PARAMS["target"], (), prompt, LENGTH, SETTINGS["plain"]
    )
    models = (("target", model), ("drafter", model))
    made = strategy(Neural(2), SpeculativeSampling(), SETTINGS["plain"])
    out = run(models, PARAMS, made, [prompt] * rows, LENGTH, seed=3)
    assert chi_square(count_outputs(texts(out)), distribution) > P_VALUE


@dataclasses.dataclass(frozen=True)
class ResidualIsTheTarget(SpeculativeSampling):
    """Wrong on purpose: corrections are drawn from p instead of norm([p - q]_+)."""

    def judge(self, draft, reading, options, keys):
        p = adjust(reading.logits, options.sampling)
        verdict = match_by_sampling(draft, p, 1.0, keys)
        own = draw(keys, pick(p, verdict.accepted))
        return make_verdict(draft, verdict.accepted, own, verdict.overlap)


@dataclasses.dataclass(frozen=True)
class AcceptsEverything(SpeculativeSampling):
    """Wrong on purpose: every drafted token stands."""

    def judge(self, draft, reading, options, keys):
        verdict = match_by_sampling(draft, adjust(reading.logits, options.sampling), 1.0, keys)
        own = pick(verdict.tokens, verdict.accepted)
        return make_verdict(draft, draft.length, own, verdict.overlap)


@pytest.mark.parametrize(
    "rule", [ResidualIsTheTarget(), pytest.param(AcceptsEverything(), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "drafter",
    ["neural", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bigram", "max_gram"))],
)
def test_a_wrong_rule_fails_the_same_test(rule, drafter, rows):
    assert p_value(strategy(DRAFTERS[drafter], rule, SETTINGS["plain"]), rows) < 1e-6


@dataclasses.dataclass(frozen=True)
class LawsOfOtherHeads(Medusa):
    """Wrong on purpose: reports for each token the law that another head drew from."""

    def propose(self, env, caches, memory, context, keys):
        draft, *rest = super().propose(env, caches, memory, context, keys)
        other = Categorical(draft.distribution.probs[:, ::-1])
        return draft.replace(distribution=other), *rest


@pytest.mark.slow
def test_laws_that_tokens_were_not_drawn_from_fail_the_same_test(rows):
    made = strategy(LawsOfOtherHeads(2), SpeculativeSampling(), SETTINGS["plain"])
    assert p_value(made, rows) < 1e-6


def bild_distribution(settings, fallback: float, rollback: float, text=()) -> dict[tuple, float]:
    """Law of BiLD's outputs behind `text` for a window of one token (docs/methods/bild.md)."""
    if text[-1:] == (EOS,) or len(text) == LENGTH:
        return {text: 1.0}
    distributions: dict[tuple, float] = {}

    def reach(distribution: dict[tuple, float], mass: float) -> None:
        for output, p in distribution.items():
            distributions[output] = distributions.get(output, 0.0) + mass * p

    def write(name: str, behind: tuple) -> list[tuple[int, float]]:
        logits = MODEL.logits(PARAMS[name], SOURCE, (0, *behind))
        return [(t, p) for t, p in enumerate(adjust_probabilities(logits, *settings)) if p]

    def plain(name: str) -> np.ndarray:
        return adjust_probabilities(MODEL.logits(PARAMS[name], SOURCE, (0, *text)), 1.0, 0, 1.0)

    def large(behind: tuple, mass: float) -> None:
        for token, p in write("target", behind):
            reach(bild_distribution(settings, fallback, rollback, (*behind, token)), mass * p)

    if plain("drafter").max() < fallback:
        large(text, 1.0)
        return distributions
    for token, q in write("drafter", text):
        if token == EOS or len(text) + 1 == LENGTH:
            reach({(*text, token): 1.0}, q)
        elif -np.log(plain("target")[token]) <= rollback:
            large((*text, token), q)
        else:
            large(text, q)
    return distributions


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SETTINGS["plain"], SETTINGS["truncated"]], ids=SETTINGS)
def test_bild_has_the_law_of_its_definition_and_not_the_targets(settings, rows):
    fallback, rollback = 0.45, 1.2
    temperature, top_k, top_p = settings
    made = specjax.strategy(
        drafter="bild", fallback=fallback, rollback=rollback, length=1,
        temperature=temperature, top_k=top_k, top_p=top_p,
    )  # fmt: skip
    seen = count_outputs(texts(run(MODELS, PARAMS, made, [SOURCE] * rows, LENGTH, seed=7)))
    assert chi_square(seen, bild_distribution(settings, fallback, rollback)) > P_VALUE
    distribution = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, settings)
    assert chi_square(seen, distribution) < 1e-6
    assert chi_square(seen, bild_distribution(settings, fallback, np.inf)) < 1e-6


def test_the_seed_decides_the_output():
    made = strategy(DRAFTERS["neural"], SpeculativeSampling(), SETTINGS["plain"])
    first, again, other = (
        texts(run(MODELS, PARAMS, made, [SOURCE] * 50, LENGTH, seed=s)) for s in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_the_width_of_verification_changes_no_sampled_token():
    whole = strategy(Neural(3), SpeculativeSampling(), SETTINGS["plain"])
    fitting = dataclasses.replace(whole, reader=FittedReader((1, 3)))
    # Alone, so that a call is as narrow as the row's own draft.
    for seed in range(20):
        one, other = (run(MODELS, PARAMS, s, [SOURCE], LENGTH, seed=seed) for s in (whole, fitting))
        assert texts(one) == texts(other)


def test_a_traced_temperature_does_not_recompile():
    from specjax.decoding.loop import generate

    made = [strategy(Nothing(), SpeculativeSampling(), (t, 0, 1.0)) for t in (0.9, 1.1)]
    run(MODELS, PARAMS, made[0], [SOURCE], LENGTH)
    before = generate._cache_size()
    run(MODELS, PARAMS, made[1], [SOURCE], LENGTH)
    assert generate._cache_size() == before
    assert jnp.isfinite(made[0].options().sampling.temperature)
