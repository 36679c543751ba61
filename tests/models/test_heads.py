"""Residual states, what is read from them, and parallel heads on them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallel_heads import random_heads

from specjax.data.pipeline import pad_batch
from specjax.models.causal import Causal, CausalConfig
from specjax.models.heads import Heads
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.models.vocabularies import SharedVocabulary

V, D = 11, 12
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=D, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
            num_decoder_layers=1, tied=True, scale_outputs=True, dropout=0.2,
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=D, d_ff=16, num_layers=1, num_heads=2, num_kv_heads=1, d_head=6,
            max_positions=64, rope=Rope(6), eos=(1,), dropout=0.2,
        )
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=["t5", pytest.param("llama", marks=pytest.mark.slow)])
def trunk(request):
    """A model, its parameters and a batch."""
    model = MODELS[request.param]
    batch = pad_batch([([3, 4, 1], [5, 6, 7, 1]), ([8, 1], [9, 1])], 4, model.info.start_token, 0)
    return model, jax.jit(model.init)(jax.random.key(0)), batch


@pytest.mark.slow
def test_what_is_read_from_the_states_is_what_is_taught(trunk):
    model, params, batch = trunk

    @jax.jit
    def both(params):
        found = []
        for key in (None, jax.random.key(1)):
            states = model.states(params, batch, key=key)
            assert states.shape == (*batch["inputs"].shape, D)
            found.append((model.read_out(params, states), model.teach(params, batch, key=key)[0]))
        return found

    plain, dropped = both(params)
    np.testing.assert_allclose(*plain, atol=1e-5)  # rounding only: logits are O(1)
    np.testing.assert_allclose(*dropped, atol=1e-5)
    assert np.abs(plain[0] - dropped[0]).max() > 0.01


@pytest.mark.slow
def test_what_is_read_from_the_states_of_a_cached_call_are_its_logits(trunk):
    model, params, batch = trunk

    @jax.jit
    def both(params):
        cache, _ = model.start(params, batch["prompt"], batch["prompt_length"], 12)
        output, _ = model.extend(params, batch["inputs"], cache)
        return model.read_out(params, output.hidden), output.logits

    np.testing.assert_allclose(*both(params), atol=1e-5)


def test_states_of_any_rank_are_read_and_a_narrowed_vocabulary_stays_narrow(trunk):
    model, params, _ = trunk
    states = np.random.default_rng(2).normal(size=(2, 3, 5, D)).astype(np.float32)
    logits = model.read_out(params, states)
    for row in range(2):
        np.testing.assert_allclose(logits[row], model.read_out(params, states[row]), atol=1e-5)
    np.testing.assert_array_equal(
        SharedVocabulary(model, 7).read_out(params, states), logits[..., :7]
    )


def test_untrained_heads_repeat_the_law_of_the_trunk():
    heads = Heads(3, D, 20)
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, D)), jnp.float32)
    states = heads.compute_states(jax.jit(heads.init)(jax.random.key(1)), hidden)
    np.testing.assert_array_equal(states, jnp.broadcast_to(hidden[..., None, :], (2, 5, 3, D)))


def test_a_head_is_its_formula_in_float64():
    made = random_heads(3, D, seed=0)
    hidden = np.random.default_rng(0).normal(size=(2, D))
    states = made.heads.compute_states(made.params, jnp.asarray(hidden, jnp.float32))
    for head in range(3):
        tree = jax.tree.map(lambda x: np.asarray(x, np.float64), made.params[f"head_{head + 1}"])
        inner = np.maximum(hidden @ tree["up"]["kernel"] + tree["up"]["bias"], 0)
        expected = hidden + inner @ tree["down"]["kernel"] + tree["down"]["bias"]
        np.testing.assert_allclose(states[:, head], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"count": 0}, "count is 0"), ({"activation": "cube"}, "'cube'; it must be one of relu")],
)
def test_impossible_heads_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        Heads(**{"count": 2, "d_model": 4, "width": 4} | fields)
