"""Losses against direct float64 formulas, and exits and vocabularies of objectives."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slow_cases import some_slow

from specjax.data.pipeline import pad_batch
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.training.loss import DIVERGENCES, cross_entropy, total_variation
from specjax.training.objective import TEACHER, FrozenModel
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.objectives.distillation import Distillation
from specjax.training.surgery import take

V = 11
T5_MODEL = T5(
    T5Config(
        vocab_size=V, d_model=12, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
        num_decoder_layers=3, tied=True, scale_outputs=True,
    )
)  # fmt: skip
LLAMA = Causal(
    CausalConfig(
        "llama", V, d_model=12, d_ff=16, num_layers=3, num_heads=2, num_kv_heads=1, d_head=6,
        max_positions=64, rope=Rope(6), eos=(1,),
    )
)  # fmt: skip
MODELS = {"t5": T5_MODEL, "llama": LLAMA}
PAIRS = [([a, b, 1], [b, a, b, 1][: 2 + a % 3]) for a in range(2, 6) for b in range(2, 4)]


def laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random log-laws [3, 4, 5] in float64."""
    logits = np.random.default_rng(seed).normal(scale=2.0, size=(2, 3, 4, 5))
    p, q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return p, q


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * np.log(p / q)).sum(-1)


def compute_in_numpy(name: str, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    middle, accepted = (p + q) / 2, np.minimum(p, q).sum(-1)
    share, least = np.exp(-3 * accepted), np.sort(p, axis=-1)[..., -10:].min(-1, keepdims=True)
    return {
        "forward_kl": kl(p, q),
        "reverse_kl": kl(q, p),
        "jensen_shannon": (kl(p, middle) + kl(q, middle)) / 2,
        "total_variation": 1.0 - accepted,
        "lk_alpha": -np.log(accepted),
        "lk_lambda": share * kl(p, q) + (1 - share) * (1 - accepted),
        "tv_ce": -0.1 * np.log(q[..., 2]) + 0.9 * np.abs(p - q).sum(-1),
        "top_k": -(np.where(p >= least, p, 0) * np.log(q)).sum(-1),
    }[name]


def compute(name: str, p: jax.Array, q: jax.Array) -> jax.Array:
    labels = {"labels": jnp.full(p.shape[:-1], 2)} if name == "tv_ce" else {}
    return DIVERGENCES[name](p, q, **labels)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_divergence_equals_its_definition_in_float64(name):
    p, q = laws(0)
    found = compute(name, jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32))
    np.testing.assert_allclose(
        found, compute_in_numpy(name, np.exp(p), np.exp(q)), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", [n for n in DIVERGENCES if n not in ("tv_ce", "top_k")])
def test_a_divergence_of_equal_laws_is_zero_and_so_is_its_gradient(name):
    p = jnp.asarray(laws(1)[0], jnp.float32)
    loss, gradient = jax.value_and_grad(lambda q: jnp.sum(DIVERGENCES[name](p, q)))(p)
    assert abs(loss) < 1e-5 and np.abs(gradient).max() < (1.0 if "var" in name else 2.0)
    assert np.isfinite(gradient).all()


def test_total_variation_is_one_minus_the_acceptance():
    """Of speculative sampling: sum of min(p, q)."""
    p, q = laws(2)
    accepted = np.minimum(np.exp(p), np.exp(q)).sum(-1)
    found = total_variation(jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32))
    np.testing.assert_allclose(1.0 - found, accepted, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_the_definition_in_float64(smoothing):
    p, _ = laws(3)
    labels = np.random.default_rng(0).integers(0, 5, (3, 4))
    wanted = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    found = cross_entropy(jnp.asarray(p, jnp.float32), jnp.asarray(labels), smoothing)
    np.testing.assert_allclose(found, -(wanted * p).sum(-1), rtol=1e-5)


def make_batch(model, rows=PAIRS, bucket: int = 4):
    return pad_batch(rows, bucket, model.info.start_token, 0)


@functools.cache
def make_params(model, seed: int = 0):
    return model.init(jax.random.key(seed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_the_early_exit_loss_is_the_mean_of_the_losses_after_each_layer(kind):
    model, batch = MODELS[kind], make_batch(MODELS[kind])
    params = make_params(model)
    separate = []
    for layer in (1, 3):
        logits = model.teach(params, batch, exits=(layer,))[0]
        separate.append(float(np.sum(cross_entropy(logits, batch["labels"]) * batch["mask"])))
    assert separate[0] != separate[1]
    total, _ = CrossEntropy(exits="first_and_last").sums(model, params, {}, batch, None)
    np.testing.assert_allclose(total, np.mean(separate), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_calm_weighs_an_exit_by_its_layer(kind):
    model, batch = MODELS[kind], make_batch(MODELS[kind])
    params = model.init(jax.random.key(0))
    separate = [
        float(np.sum(cross_entropy(logits, batch["labels"]) * batch["mask"]))
        for logits in model.teach(params, batch, exits=(1, 2, 3))
    ]
    made = CrossEntropy(exits="all", exit_weights="linear")
    total, _ = made.sums(model, params, {}, batch, None)
    np.testing.assert_allclose(total, np.dot(separate, [1, 2, 3]) / 6, rtol=1e-5)


@pytest.mark.parametrize("kind", some_slow(MODELS, "llama"))
def test_an_exit_is_the_model_cut_off_after_that_layer(kind):
    model, batch = MODELS[kind], make_batch(MODELS[kind])
    params = make_params(model)
    small, cut = take(model, params, decoder=(0,))
    np.testing.assert_allclose(
        small.teach(cut, batch)[0], model.teach(params, batch, exits=(1,))[0], atol=1e-5
    )


def test_padding_of_a_vocabulary_is_not_distilled():
    """A teacher of a wider vocabulary: the common ids only, as they are decoded."""
    wide = T5(dataclasses.replace(T5_MODEL.config, vocab_size=V + 5))
    params, batch = wide.init(jax.random.key(1)), make_batch(T5_MODEL)
    cut = {**params, "embedding": params["embedding"][:V]}
    student = make_params(T5_MODEL)
    totals = [
        Distillation().sums(T5_MODEL, student, {TEACHER: teacher}, batch, None)[0]
        for teacher in (FrozenModel(params, wide), FrozenModel(cut, T5_MODEL))
    ]
    np.testing.assert_allclose(*totals, rtol=1e-5)
