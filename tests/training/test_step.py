"""The step's arithmetic: its dtype, recomputed layers, and the gradients that speed relies on."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.data.pipeline import pad_batch
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import Dense, compute_tied_logits
from specjax.models.positions import Rope
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.training.loss import cross_entropy
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, sums, train_step

V, DEPTH = 13, 3
T5_MODEL = T5(
    T5Config(
        vocab_size=V, d_model=16, d_kv=8, d_ff=32, num_heads=2, num_layers=DEPTH,
        num_decoder_layers=DEPTH, tied=True, scale_outputs=True,
    )
)  # fmt: skip
LLAMA = Causal(
    CausalConfig(
        "llama", V, d_model=16, d_ff=32, num_layers=DEPTH, num_heads=2, num_kv_heads=1, d_head=8,
        max_positions=64, rope=Rope(8), eos=(1,), dropout=0.2,
    )
)  # fmt: skip
MODELS = {"t5": T5_MODEL, "llama": LLAMA}

KEEP_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Without it the CPU backend schedules the second computation beside the first."""


def rows() -> list:
    rng = np.random.default_rng(0)
    return [(rng.integers(2, V, 9).tolist(), rng.integers(2, V, 15).tolist()) for _ in range(16)]


def make_setup(model, **fields) -> Setup:
    return Setup(model, CrossEntropy(0.1), Optimizer(2, 1e-3, decay="constant"), **fields)


def make_batch(model) -> dict:
    return pad_batch(rows(), 16, model.info.start_token, 0)


@functools.partial(jax.jit, static_argnames="setup")
def loss_and_gradient(setup, params, batch):
    total, count, gradient = sums(setup, params, {}, batch, jax.random.key(5))
    return total / count, gradient


@functools.cache
def plain(kind: str):
    """Parameters, compiled program and result of a setup with dropout that keeps everything."""
    params = jax.jit(MODELS[kind].init)(jax.random.key(0))
    return params, *compile_step(make_setup(MODELS[kind], dropout=True), params)


def compile_step(setup, params):
    batch = make_batch(setup.model)
    program = loss_and_gradient.lower(setup, params, batch).compile(compiler_options=KEEP_BARRIERS)
    return program, program(params, batch)


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def relative(found, wanted) -> float:
    """Norm of the difference of two trees over the norm of the second."""
    return np.linalg.norm(flat(found) - flat(wanted)) / np.linalg.norm(flat(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_recomputed_layers_give_the_same_gradient_in_less_memory(kind):
    """With dropout (llama's) the second computation must draw the masks of the first."""
    params, kept, (loss, gradient) = plain(kind)
    model = MODELS[kind]
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, remat=True))
    fresh = get_parameter_shapes(model)
    assert jax.tree.structure(fresh) == jax.tree.structure(params)  # the same checkpoints
    program, (again, found) = compile_step(make_setup(model, dropout=True), params)
    np.testing.assert_allclose(again, loss, rtol=1e-5)
    assert relative(found, gradient) < 1e-5
    before, after = (p.memory_analysis().temp_size_in_bytes for p in (kept, program))
    # One layer of each stack instead of three; logits, masks and gradients remain.
    assert after < 0.6 * before


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_bfloat16_arithmetic_keeps_gradients_and_state_in_float32(kind):
    params, _, (loss, gradient) = plain(kind)
    setup = make_setup(MODELS[kind], dropout=True, dtype=jnp.bfloat16)
    program, (found, low) = compile_step(setup, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(low)} == {jnp.dtype(jnp.float32)}
    assert "bf16" in program.as_text()
    np.testing.assert_allclose(found, loss, rtol=0.02)  # 8 bits of mantissa
    assert 1e-4 < relative(low, gradient) < 0.5  # another arithmetic, the same direction
    state = setup.start(jax.tree.map(jnp.array, params))  # `plain` keeps its own
    types = jax.tree.map(lambda x: x.dtype, state)
    after, _ = jax.eval_shape(
        functools.partial(train_step, setup), state, {}, make_batch(setup.model)
    )
    assert jax.tree.map(lambda x: x.dtype, after) == types
    assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.dtype(jnp.float32)}


def test_the_gradient_of_smoothed_cross_entropy_is_that_of_its_definition():
    rng = np.random.default_rng(1)
    logits = jnp.asarray(rng.normal(scale=3.0, size=(2, 5, V)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, V, (2, 5)))
    weights = jnp.asarray(rng.normal(size=(2, 5)), jnp.float32)

    def define(logits):
        target = 0.9 * jax.nn.one_hot(labels, V) + 0.1 / V
        return jnp.sum(-jnp.sum(target * jax.nn.log_softmax(logits), axis=-1) * weights)

    def ours(logits):
        return jnp.sum(cross_entropy(logits, labels, 0.1) * weights)

    np.testing.assert_allclose(jax.grad(ours)(logits), jax.grad(define)(logits), atol=1e-6)


def test_a_label_outside_the_vocabulary_is_no_number():
    assert np.isnan(cross_entropy(jnp.zeros((1, 1, V)), jnp.array([[V]]), 0.1)).all()


def test_both_orders_of_a_tied_output_layer_agree():
    x = jax.random.normal(jax.random.key(0), (2, 3, 8))
    table = jax.random.normal(jax.random.key(1), (V, 8))
    found = [compute_tied_logits(x, table, training) for training in (True, False)]
    np.testing.assert_allclose(*found, atol=1e-5)


def test_the_weight_gradient_of_a_projection_transposes_nothing():
    """Over [B, T, D] XLA wrote the transposed gradient out: 12% of a training step on CPU."""
    dense, x = Dense(24), jnp.ones((4, 6, 16))
    params = dense.init(jax.random.key(0), x)

    def loss(params, x):
        return jnp.sum(jnp.tanh(dense.apply(params, x)))

    text = jax.jit(jax.grad(loss)).lower(params, x).compile().as_text()
    assert " dot(" in text
    assert " transpose(" not in text
