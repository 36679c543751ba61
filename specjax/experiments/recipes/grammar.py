"""What the pair on the built-in grammar is trained with: the quickstart's, and the notebooks'."""

from __future__ import annotations

from ml_collections import ConfigDict

STEPS = 600
"""Of the target's training."""

LAYERS = 16
"""Decoder layers of the target when it decodes."""

MOST_WORDS = 16
"""German words of a sentence at most; longer ones take longer to learn."""

_START_LAYERS = 2
"""Decoder layers of the target while it learns; the others come last and are silent at first."""


def training(steps: int = STEPS, layers: int = LAYERS) -> ConfigDict:
    """The corpus and the two models; fewer `steps` see fewer sentences, and translate worse."""
    training = ConfigDict()
    training.examples = max(16_000 * steps // STEPS, 300)
    training.test_examples = 200
    training.vocab_size = 2048
    training.most_words = MOST_WORDS
    training.most_tokens = 20  # of a sentence that is learned from: one shape to compile
    training.batch_size = 32
    training.seed = 0
    training.target = ConfigDict(
        {
            "d_model": 128,
            "d_kv": 32,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 2,
            "num_decoder_layers": min(_START_LAYERS, layers),
            "warmup": min(60, steps),
            "learning_rate": 2.5e-2,
            "steps": steps,
            "deep_layers": layers,  # decoder layers after the last steps
            "deep_steps": max(steps // 60, 1) if layers > _START_LAYERS else 0,
        }
    )
    drafter_steps = max(steps * 220 // STEPS, 1)
    training.drafter = ConfigDict(  # begins as the first layers of the target
        {
            "num_layers": 2,
            "num_decoder_layers": 1,
            "warmup": min(10, drafter_steps),
            "learning_rate": 1e-2,
            "steps": drafter_steps,
        }
    )
    return training
