"""What the pair on the built-in grammar is trained with: the quickstart's, and the notebooks'."""

from __future__ import annotations

from ml_collections import ConfigDict

STEPS = 900
"""Of the target's training: three minutes for both models on two CPU cores."""

LAYERS = 12
"""Decoder layers of the target when it decodes."""

_START_LAYERS = 2
"""Decoder layers of the target while it learns; the others come last and are silent at first."""


def training(steps: int = STEPS, layers: int = LAYERS) -> ConfigDict:
    """The corpus and the two models; fewer `steps` see fewer sentences, and translate worse."""
    training = ConfigDict()
    training.examples = max(30_000 * steps // STEPS, 300)
    training.test_examples = 200
    training.vocab_size = 2048
    warmup = min(60, steps)
    common = {"seed": 0, "batch_size": 32, "bucket": 24, "warmup": warmup, "learning_rate": 2.5e-2}
    training.target = ConfigDict(
        {
            **common,
            "d_model": 192,
            "d_kv": 32,
            "num_heads": 6,
            "d_ff": 768,
            "num_layers": 2,
            "num_decoder_layers": min(_START_LAYERS, layers),
            "steps": steps,
            "deep_layers": layers,  # decoder layers after the last steps
            "deep_steps": max(steps // 30, 1) if layers > _START_LAYERS else 0,
        }
    )
    training.drafter = ConfigDict(
        {
            **common,
            "d_model": 128,
            "d_kv": 32,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "steps": max(steps * 8 // 9, 1),
            "deep_layers": 1,
            "deep_steps": 0,
        }
    )
    return training
