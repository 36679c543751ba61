"""Near ties of the target, on logits made by hand and on those of small models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exits import MODELS, PARAMS, Uncached
from slow_cases import some_slow

from specjax.metrics.ties import Divergence, divergence, is_near_tie, logits_at, near_ties
from specjax.models.guided import GuidedModel
from specjax.models.vocabularies import SharedVocabulary

BFLOAT16 = 2.0**-7
"""Machine epsilon: seven bits behind the leading one."""


def test_outputs_part_at_their_first_difference():
    assert divergence([3], [5, 6, 7, 1], [5, 6, 8, 7, 1]) == Divergence([3], [5, 6], (7, 8))
    assert divergence([3], [1], [5, 1]) == Divergence([3], [], (1, 5))
    assert divergence([3], [5, 6, 1], [5, 6, 1]) is None


@pytest.mark.parametrize(
    ("gap", "tie"), [(0.0, True), (16 * BFLOAT16, True), (16.5 * BFLOAT16, False), (9.0, False)]
)
def test_a_near_tie_is_a_gap_below_the_rounding_of_the_largest_magnitude(gap, tie):
    logits = np.array([-16.0, 10.0, 10.0 - gap, -3.0])
    assert is_near_tie(logits, (1, 2), jnp.bfloat16) == tie
    assert is_near_tie(logits, (2, 1), jnp.bfloat16) == tie


def test_rounding_is_that_of_the_dtype():
    logits = np.array([10.0, 10.0 - 1e-3, 0.0])
    assert is_near_tie(logits, (0, 1), jnp.bfloat16)
    assert not is_near_tie(logits, (0, 1), jnp.float32)


def test_another_token_than_those_that_tie_is_no_near_tie():
    logits = np.array([10.0, 10.0, 4.0])
    assert not is_near_tie(logits, (0, 2), jnp.bfloat16)
    assert not is_near_tie(np.array([10.0, 4.0, 4.0]), (1, 2), jnp.bfloat16)


@pytest.mark.parametrize("kind", some_slow(["t5", "llama"], "llama"))
def test_the_target_is_asked_where_the_outputs_part(kind):
    model, params = MODELS[kind], PARAMS[kind]
    prompt, shared = [3, 4, 5, 2], [6, 7, 2]
    source, head = (prompt, [0]) if kind == "t5" else ((), prompt)
    distribution = Uncached(kind).logits(params, source, head + shared)
    np.testing.assert_allclose(
        logits_at(model, params, Divergence(prompt, shared, (2, 3))), distribution, atol=1e-5
    )
    best, second = (int(token) for token in np.argsort(distribution)[::-1][:2])
    parted = [Divergence(prompt, shared, (best, second)), Divergence(prompt, shared, (best, best))]
    assert near_ties(model, params, parted, jnp.float32) == 1


def test_a_guided_target_is_asked_with_its_prompt_and_without():
    """In the ids of a narrower vocabulary, as drafters of one make them."""
    model, params = MODELS["llama"], PARAMS["llama"]
    prompt, shared, scale, width = [3, 4, 5, 2], [6, 7, 2], 1.7, model.info.vocab_size - 2
    own, free = (
        jax.nn.log_softmax(Uncached("llama").logits(params, (), text + shared))
        for text in (prompt, prompt[-1:])
    )
    found = logits_at(
        SharedVocabulary(GuidedModel(model, scale), width),
        params,
        Divergence(prompt, shared, (2, 3)),
    )
    np.testing.assert_allclose(found, (free + scale * (own - free))[:width], atol=1e-5)
