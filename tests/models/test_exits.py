"""Early exits of the models: first layers, the rest on their states, and what skipped ones keep."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exits import KINDS, MODELS, PARAMS

from specjax.models.base import Resume

LENGTHS = [5, 3, 4]
PROMPT = jnp.array([[3, 4, 5, 6, 7], [8, 9, 2, 0, 0], [2, 3, 2, 4, 0]])
FED = jnp.array([[4, 5, 6], [7, 8, 9], [2, 3, 4]])
CAPACITY, EXIT = 14, 1


@functools.cache
def start_rows(kind: str):
    """A cache whose rows hold two, one and no tokens beyond what `start` leaves."""
    model = MODELS[kind]
    begin = jax.jit(functools.partial(model.start, capacity=CAPACITY))
    cache, _ = begin(PARAMS[kind], PROMPT, jnp.array(LENGTHS))
    ahead = jax.jit(model.extend)(PARAMS[kind], FED[:, :2], cache)[1]
    return ahead.replace(length=cache.length + jnp.array([2, 1, 0]))


@functools.cache
def extend(kind: str, **how):
    """The jitted call with its layers."""
    return jax.jit(functools.partial(MODELS[kind].extend, **how))


def own(cache, layer: int) -> np.ndarray:
    """Keys and values [2, B, H, C, d] of a layer."""
    return np.stack(cache.data["own"][layer])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_rest_on_the_states_of_an_exit_equals_the_whole_model(kind):
    params, cache = PARAMS[kind], start_rows(kind)
    whole, expected = extend(kind)(params, FED, cache)
    first, between = extend(kind, exit=EXIT)(params, FED, cache)
    between = between.replace(length=cache.length)
    rest, after = extend(kind)(params, FED, between, resume=Resume(first.hidden, EXIT))
    np.testing.assert_allclose(rest.logits, whole.logits, atol=2e-5)
    np.testing.assert_array_equal(after.length, expected.length)
    for layer in range(MODELS[kind].info.depth):
        np.testing.assert_allclose(own(after, layer), own(expected, layer), atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exit_reads_its_state_out_and_leaves_the_layers_above_alone(kind):
    params, cache = PARAMS[kind], start_rows(kind)
    output, after = extend(kind, exit=EXIT)(params, FED, cache)
    above = range(EXIT, MODELS[kind].info.depth)
    assert all(np.array_equal(own(after, layer), own(cache, layer)) for layer in above)
    assert not np.array_equal(own(after, 0), own(cache, 0))
    np.testing.assert_array_equal(after.length, cache.length + FED.shape[1])
    read = MODELS[kind].read_out(params, output.hidden)
    np.testing.assert_allclose(output.logits, read, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_layer_keeps_what_it_would_have_made_of_the_state(kind):
    params, cache, model = PARAMS[kind], start_rows(kind), MODELS[kind]
    state = extend(kind, exit=1)(params, FED, cache)[0].hidden
    kept = jax.jit(functools.partial(model.propagate, layers=(1, 3)))(params, state, cache)
    np.testing.assert_array_equal(kept.length, cache.length)
    for layer in (1, 2):
        ran = extend(kind, exit=layer + 1)(params, FED, cache, resume=Resume(state, layer))[1]
        np.testing.assert_allclose(own(kept, layer), own(ran, layer), atol=1e-6)
    np.testing.assert_array_equal(own(kept, 0), own(cache, 0))
