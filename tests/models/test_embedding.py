"""Prompt embeddings of `start`: the states that the contract names, without padding."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exits import MODELS, PARAMS
from slow_cases import some_slow

from specjax.models.layers import apply
from specjax.models.vocabularies import SharedVocabulary

LENGTHS = [5, 3, 1]
PROMPT = jnp.array([[3, 4, 5, 6, 7], [8, 9, 2, 11, 11], [2, 10, 10, 10, 10]])
CAPACITY = 12


@functools.cache
def embedding(kind: str):
    """Of a padded batch."""
    begin = jax.jit(functools.partial(MODELS[kind].start, capacity=CAPACITY))
    return begin(PARAMS[kind], PROMPT, jnp.array(LENGTHS))[1].embedding


def test_an_encoder_decoder_gives_the_mean_of_its_encoder_states():
    module = MODELS["t5"].module
    for row, length in enumerate(LENGTHS):
        baseline = PROMPT[row : row + 1, :length]
        states = apply(module, "encode", PARAMS["t5"], baseline, jnp.array([length]))
        expected = np.asarray(states[0]).mean(axis=0)
        np.testing.assert_allclose(embedding("t5")[row], expected, atol=1e-5)


def test_a_decoder_gives_the_state_that_its_head_reads_at_the_last_token():
    model, params = MODELS["llama"], PARAMS["llama"]
    batch = {"inputs": PROMPT, "length": jnp.array(LENGTHS)}
    (logits,) = model.teach(params, batch)
    last = logits[jnp.arange(len(LENGTHS)), jnp.array(LENGTHS) - 1]
    np.testing.assert_allclose(embedding("llama") @ params["head"]["kernel"], last, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    some_slow(MODELS, "t5", "llama"),
)
def test_a_model_with_fewer_ids_gives_the_same(kind):
    length = jnp.array(LENGTHS)
    narrow = SharedVocabulary(MODELS[kind], 10)
    begin = jax.jit(functools.partial(narrow.start, capacity=CAPACITY))
    found = begin(PARAMS[kind], PROMPT, length)[1].embedding
    np.testing.assert_array_equal(found, embedding(kind))
    assert found.dtype == jnp.float32
