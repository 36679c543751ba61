"""The training pieces: loss, input pipeline, train step, and layers from another model."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.data.pipeline import pad_batch, training_batches
from specjax.errors import UserError
from specjax.models.t5 import T5, T5Config
from specjax.training.loss import cross_entropy
from specjax.training.surgery import deepen
from specjax.training.trainer import Recipe, train

MODEL = T5(
    T5Config(
        vocab_size=11, d_model=12, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
        num_decoder_layers=1, tied=True, scale_outputs=True,
    )
)  # fmt: skip
PAIRS = [([a, b, 1], [b, a, 1]) for a in range(2, 11) for b in range(2, 11)]


def batches(seed: int = 0):
    return training_batches(PAIRS, batch_size=16, bucket=4, seed=seed, start_token=0, pad=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_the_definition_in_float64(smoothing):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(3, 4, 5)), rng.integers(0, 5, (3, 4))
    mask = rng.random((3, 4)) < 0.6
    law = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    expected = -(wanted * np.log(law)).sum(-1)[mask].mean()
    loss = cross_entropy(jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(mask), smoothing)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_padding_contributes_nothing_to_loss_or_gradient():
    params = MODEL.init(jax.random.key(0))

    def loss(params, batch):
        logits = MODEL.module.apply(
            {"params": params}, batch["source"], batch["source_length"], batch["inputs"]
        )
        return cross_entropy(logits, batch["labels"], batch["mask"])

    narrow, wide = pad_batch(PAIRS[:5], 4, 0, 0), pad_batch(PAIRS[:5], 16, 0, 0)
    assert narrow["source"].shape != wide["source"].shape
    first, second = (jax.value_and_grad(loss)(params, batch) for batch in (narrow, wide))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), first, second)


def test_decoder_inputs_are_the_labels_one_step_later():
    batch = pad_batch([([5, 1], [7, 8, 1])], 4, 0, 0)
    assert batch["inputs"].tolist() == [[0, 7, 8, 1]]
    assert batch["labels"].tolist() == [[7, 8, 1, 0]]
    assert batch["mask"].tolist() == [[True, True, True, False]]


def test_the_pipeline_is_a_function_of_its_seed():
    def first(seed: int) -> list[list[list[int]]]:
        return [b["source"].tolist() for b in itertools.islice(batches(seed), 12)]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_an_epoch_holds_every_batch_once():
    epoch = list(itertools.islice(batches(), len(PAIRS) // 16))
    rows = [tuple(row) for batch in epoch for row in batch["source"].tolist()]
    assert len(rows) == len(set(rows)) == len(PAIRS) // 16 * 16


def test_training_learns_a_small_task():
    recipe = Recipe(steps=150, learning_rate=3e-2, warmup=10)
    losses = []
    params = train(MODEL, recipe, batches(), name="small")
    for start in (MODEL.init(jax.random.key(0)), params):
        batch = pad_batch(PAIRS, 4, 0, 0)
        logits = MODEL.module.apply(
            {"params": start}, batch["source"], batch["source_length"], batch["inputs"]
        )
        losses.append(float(cross_entropy(logits, batch["labels"], batch["mask"])))
    assert losses[1] < 0.5 * losses[0]


def test_a_diverging_run_stops_with_a_clear_message():
    broken = jax.tree.map(lambda x: x * jnp.nan, MODEL.init(jax.random.key(0)))
    with pytest.raises(UserError, match="diverged at step 2"):
        train(MODEL, Recipe(steps=2, learning_rate=1e-2), batches(), name="x", params=broken)


def test_a_deepened_model_computes_the_same_until_it_is_trained():
    params = MODEL.init(jax.random.key(0))
    deep, grown = deepen(MODEL, params, 3)
    batch = pad_batch(PAIRS[:4], 4, 0, 0)
    args = batch["source"], batch["source_length"], batch["inputs"]
    before = MODEL.module.apply({"params": params}, *args)
    after = deep.module.apply({"params": grown}, *args)
    np.testing.assert_allclose(before, after, atol=1e-5)
    assert jax.tree.structure(grown) == jax.tree.structure(deep.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="already has"):
        deepen(deep, grown, 1)
