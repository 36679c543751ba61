"""Training settings of the pair on the built-in grammar, for quickstart and notebooks."""

from __future__ import annotations

from typing import Any

from specjax.checks import seed
from specjax.contracts.fields import group, integer, number
from specjax.data.grammar import LEAST_LIMIT, MOST_PAIRS
from specjax.experiments.config.blocks import block

STEPS = 600
"""Steps of the target's training."""

LAYERS = 16
"""Decoder layers of the target when it decodes."""

_START_LAYERS = 2
"""Decoder layers of the target at first; later layers are added as identities."""


def _steps(steps: int) -> Any:
    return integer(steps, most=10**8, help="training steps")


@block
class Drafter:
    """The quickstart's drafter, initialized with the first layers of the target."""

    num_layers: int = integer(2, help="encoder layers")
    num_decoder_layers: int = integer(1, help="decoder layers")
    warmup: int = integer(10, least=0, help="steps of linear growth")
    learning_rate: float = number(1e-2, bounds="[1e-9, 1000]", help="peak")
    steps: int = _steps(220)


@block
class Target(Drafter):
    """The quickstart's target."""

    d_model: int = integer(128, help="width")
    d_kv: int = integer(32, help="width of a head")
    num_heads: int = integer(4, help="attention heads")
    d_ff: int = integer(512, help="width of the feed-forward")
    num_decoder_layers: int = integer(_START_LAYERS, help="decoder layers while it learns")
    warmup: int = integer(60, least=0, help="steps of linear growth")
    learning_rate: float = number(2.5e-2, bounds="[1e-9, 1000]", help="peak")
    steps: int = _steps(STEPS)
    deep_layers: int = integer(LAYERS, least=0, help="decoder layers after the last steps")
    deep_steps: int = integer(10, least=0, most=10**8, help="number of these last steps")


def _pairs(default: int, help: str) -> Any:
    return integer(default, most=MOST_PAIRS, help=help)


@block
class Training:
    """Training data and settings of the quickstart's models."""

    examples: int = _pairs(16_000, "sentences to learn from")
    test_examples: int = _pairs(200, "sentences to decode")
    vocab_size: int = integer(2048, least=16, most=10**7, help="pieces at most")
    most_words: int = integer(
        16, least=LEAST_LIMIT, help="German words of a sentence; longer ones take longer to learn"
    )
    most_tokens: int = integer(20, help="tokens of a sentence to learn from: one compiled shape")
    batch_size: int = integer(32, most=2**20, help="sentences of a step")
    seed: int = seed(help="seed of parameters and batches")
    target: Target = group(Target)
    drafter: Drafter = group(Drafter)


def make_training(steps: int, layers: int) -> dict[str, Any]:
    """Config changes for other numbers; fewer `steps` see fewer sentences and translate worse."""
    drafter_steps = max(steps * 220 // STEPS, 1)
    return {
        "examples": max(16_000 * steps // STEPS, 300),
        "target": {
            "num_decoder_layers": min(_START_LAYERS, layers),
            "warmup": min(60, steps),
            "steps": steps,
            "deep_layers": layers,
            "deep_steps": max(steps // 60, 1) if layers > _START_LAYERS else 0,
        },
        "drafter": {"warmup": min(10, drafter_steps), "steps": drafter_steps},
    }
