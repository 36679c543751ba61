"""The recipe of drafters that borrow their target's encoder, as Distil-Whisper does."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config


def distill_decoder(
    checkpoint: str, layers: tuple[int, ...], task: str, **changes: Any
) -> ConfigDict:
    """Distillation of some decoder layers of a checkpoint on its own outputs.

    The encoder and the embedding stay as they are (Gandhi et al. 2023, "Distil-Whisper"). The last
    24 rows of the data are held out. `changes` are those of other fields.
    """
    recipe = {
        "target": checkpoint,
        "model": {"checkpoint": checkpoint, "decoder_layers": layers, "frozen": ("embedding",)},
        "train": {"task": task},
        "validation": {"examples": 24},
        "sequences": {"data": 0.0, "target": 1.0},
        "target_outputs": {"batch_size": 8},
        "objective": {"name": "distillation", "divergence": "forward_kl"},
        "optimizer": {"steps": 400, "learning_rate": 5e-4, "warmup": 40},
        "evaluation": {
            "every": 100,
            "batch_size": 8,
            "decode": False,
            "acceptance": (0.0,),
            "keep": "acceptance_0",
        },
        "batch_size": 8,
    }
    return train_config(**recipe | changes)
