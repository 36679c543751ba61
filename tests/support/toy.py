"""A toy task for training tests: two letters, to be said in the other order."""

from __future__ import annotations

from specjax.data.pipeline import Batches
from specjax.models.t5 import T5, T5Config

MODEL = T5(
    T5Config(
        vocab_size=11, d_model=12, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
        num_decoder_layers=1, tied=True, scale_outputs=True, dropout=0.1,
    )
)  # fmt: skip
PAIRS = [([a, b, 1], [b, a, 1]) for a in range(2, 11) for b in range(2, 11)]


def batches(seed: int = 0) -> Batches:
    return Batches(PAIRS, batch_size=16, bucket=4, seed=seed, start_token=0, pad=0)
