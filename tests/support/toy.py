"""A toy task for training tests: two letters, to be said in the other order."""

from __future__ import annotations

import functools

import jax

from specjax.data.pipeline import Batches, pad_batch
from specjax.models.t5 import T5, T5Config
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch
from specjax.training.trainer import Run

MODEL = T5(
    T5Config(
        vocab_size=11, d_model=12, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
        num_decoder_layers=1, tied=True, scale_outputs=True, dropout=0.1,
    )
)  # fmt: skip
PAIRS = [([a, b, 1], [b, a, 1]) for a in range(2, 11) for b in range(2, 11)]


def batches(seed: int = 0) -> Batches:
    return Batches(PAIRS, batch_size=16, bucket=4, seed=seed, start_token=0, pad=0)


def run(steps: int, rate: float = 3e-2, **fields) -> Run:
    optimizer = Optimizer(steps, rate, "relative_adam", warmup=10)
    setup = Setup(MODEL, CrossEntropy(), optimizer, dropout=True)
    init = functools.partial(MODEL.init, jax.random.key(0))
    return Run("small", setup, init, batches().since, **fields)


def loss(params) -> float:
    total, count = evaluate_batch(run(1).setup, params, {}, pad_batch(PAIRS, 4, 0, 0))
    return float(total / count)


def evaluate(params) -> dict[str, float]:
    return {"loss": loss(params)}
