"""The decode loop on models of known acceptance gives the tokens per round of Eq. 1."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run

from specjax.decoding.strategy import Strategy
from specjax.decoding.trace import Trace
from specjax.drafting.neural import Neural
from specjax.models.base import Cache, Output, PromptReading
from specjax.models.info import ModelInfo
from specjax.theory.speculative import (
    accept_rate,
    expected_tokens,
    expected_tokens_by_position,
    overlap,
)
from specjax.verification.speculative_sampling import SpeculativeSampling

ROWS, ROUNDS, LENGTH = 4000, 5, 4
Z = 4.0  # a dozen fixed-seed comparisons: a right loop fails one with probability 0.001
TARGET = np.array([0.9, 0.1, 0.0])
MOVED = np.array([-1.0, 0.5, 0.5])  # so that drafts stand always, sometimes and never


def laws(alphas: tuple[float, ...]) -> np.ndarray:
    """Laws [N, V] whose overlaps with TARGET are alphas, each at least 0.1."""
    return TARGET + (1 - np.array(alphas))[:, None] * MOVED


@dataclasses.dataclass(frozen=True)
class LawModel:
    """Draws from its parameters' law of the position, whatever the text.

    Parameters are laws [N, V], taken in turn; token ids are rotated by the position.
    """

    vocab_size: int = len(TARGET)

    @property
    def info(self):
        return ModelInfo(self.vocab_size, 1, start_token=0)

    def start(
        self, params, prompt, prompt_length, capacity, *, features=(), ahead=None, longest=None
    ):
        nothing = jnp.zeros((prompt.shape[0], 0))
        return Cache({}, jnp.zeros_like(prompt_length)), PromptReading(nothing)

    def extend(self, params, tokens, cache, *, at=None, **whole):
        position = cache.length[:, None] + jnp.arange(tokens.shape[1])
        probs = params[position % len(params)]
        token = (jnp.arange(self.vocab_size) + position[..., None]) % self.vocab_size
        logits = jnp.log(jnp.take_along_axis(probs, token, axis=-1))
        if at is not None:
            logits = jnp.take_along_axis(logits, at[..., None], axis=1)
        return Output(logits), Cache(cache.data, cache.length + tokens.shape[1])


def trace_decode(drafter: np.ndarray) -> Trace:
    """Trace of a decode with drafter laws [LENGTH, V]; no budget cuts its first ROUNDS."""
    models = (("target", LawModel()), ("drafter", LawModel()))
    distribution = {"target": np.tile(TARGET, (LENGTH, 1)), "drafter": drafter}
    params = {name: jnp.asarray(value, jnp.float32) for name, value in distribution.items()}
    strategy = Strategy(Neural(LENGTH), SpeculativeSampling(), 1.0)
    return run(models, params, strategy, [[3]] * ROWS, ROUNDS * (LENGTH + 1), seed=11).trace


def z_score(values: np.ndarray, expected: float) -> float:
    return abs(values.mean() - expected) / (values.std(ddof=1) / np.sqrt(values.size))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.6, 0.2, 0.9])
def test_constant_overlap_gives_the_tokens_of_equation_1(alpha):
    drafter = laws((alpha,) * LENGTH)
    np.testing.assert_allclose(overlap(TARGET, drafter), alpha)
    trace = trace_decode(drafter)
    committed = np.asarray(trace.committed)[:, :ROUNDS]
    accepted = np.asarray(trace.accepted)[:, :ROUNDS]
    assert np.all(np.asarray(trace.drafted)[:, :ROUNDS] == LENGTH)
    assert z_score(committed, expected_tokens(alpha, LENGTH)) < Z
    assert z_score(accepted / LENGTH, accept_rate(alpha, LENGTH)) < Z
    assert z_score(committed, expected_tokens(alpha + 0.03, LENGTH)) > Z
    measured = np.asarray(trace.overlap, np.float64).sum() / np.asarray(trace.tested).sum()
    assert measured == pytest.approx(alpha, abs=1e-5)  # float32 sums of up to 25 laws


@pytest.mark.slow
def test_overlap_that_differs_by_position_gives_running_products():
    alphas = (0.9, 0.2, 0.9, 0.9)
    committed = np.asarray(trace_decode(laws(alphas)).committed)[:, 0]
    assert z_score(committed, expected_tokens_by_position(alphas)) < Z
    assert z_score(committed, expected_tokens(np.mean(alphas), LENGTH)) > Z


@pytest.mark.slow
@pytest.mark.parametrize("drafter, tokens", [((0.0, 0.0, 1.0), 1), (TARGET, LENGTH + 1)])
def test_certain_rejection_and_acceptance(drafter, tokens):
    assert tokens == pytest.approx(expected_tokens(overlap(TARGET, drafter), LENGTH))
    committed = np.asarray(trace_decode(np.tile(drafter, (LENGTH, 1))).committed)[:, 0]
    assert np.all(committed == tokens)
