"""Prompt embeddings: the same pass as `start`, the states that the contract names, no padding."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exits import MODELS, PARAMS

from specjax.models.narrowed import Narrowed

LENGTHS = [5, 3, 1]
PROMPT = jnp.array([[3, 4, 5, 6, 7], [8, 9, 2, 11, 11], [2, 10, 10, 10, 10]])
CAPACITY = 12


@functools.cache
def started(kind: str):
    """Cache and embeddings of a padded batch."""
    begin = jax.jit(functools.partial(MODELS[kind].start_embedded, capacity=CAPACITY))
    return begin(PARAMS[kind], PROMPT, jnp.array(LENGTHS))


def test_an_encoder_decoder_gives_the_mean_of_its_encoder_states():
    module, params = MODELS["t5"].module, PARAMS["t5"]
    for row, length in enumerate(LENGTHS):
        alone = PROMPT[row : row + 1, :length]
        states = module.apply({"params": params}, alone, jnp.array([length]), method="encode")
        expected = np.asarray(states[0]).mean(axis=0)
        np.testing.assert_allclose(started("t5")[1][row], expected, atol=1e-5)


def test_a_decoder_gives_the_state_that_its_head_reads_at_the_last_token():
    model, params = MODELS["llama"], PARAMS["llama"]
    batch = {"inputs": PROMPT, "length": jnp.array(LENGTHS)}
    (logits,) = model.teach(params, batch)
    last = logits[jnp.arange(len(LENGTHS)), jnp.array(LENGTHS) - 1]
    np.testing.assert_allclose(started("llama")[1] @ params["head"]["kernel"], last, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_the_cache_is_that_of_start(kind):
    begin = jax.jit(functools.partial(MODELS[kind].start, capacity=CAPACITY))
    expected = begin(PARAMS[kind], PROMPT, jnp.array(LENGTHS))
    jax.tree.map(np.testing.assert_array_equal, started(kind)[0], expected)
    assert started(kind)[1].dtype == jnp.float32


@pytest.mark.parametrize("kind", MODELS)
def test_a_narrowed_model_gives_the_same(kind):
    length = jnp.array(LENGTHS)
    narrow = Narrowed(MODELS[kind], 10)
    begin = jax.jit(functools.partial(narrow.start_embedded, capacity=CAPACITY))
    found = begin(PARAMS[kind], PROMPT, length)[1]
    np.testing.assert_array_equal(found, started(kind)[1])
