"""Shared recipe of drafters by layers on the target's states: token by token, or all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MINUTES
from specjax.runtime.errors import UserError

SHAPES = {
    "t5": {"draft_vocab_size": 3000, "d_model": 192, "d_ff": 512, "num_heads": 3, "fc_norm": True},
    "llama": {
        "draft_vocab_size": 2000,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "read_first_token": True,
        "fc_norm": True,
    },
}
"""Half as wide as the small targets that a laptop can train for, in Hugging Face's words."""

LAYERS = {"t5": "num_decoder_layers", "llama": "num_hidden_layers"}
"""Fields with the number of layers."""


def train_layers(
    name: str, kind: str, objective: Mapping[str, Any], steps: int, layers: int = 1
) -> ConfigDict:
    """The training of a drafter of so many layers for a kind of target.

    Raises:
      UserError: when there is no such kind.
    """
    if kind not in SHAPES:
        raise UserError(
            f"--config=...:{kind!r} is no kind of target; known are {', '.join(SHAPES)}"
        )
    more = {} if layers == 1 else {LAYERS[kind]: layers}
    return train_config(
        name=name,
        objective={"name": name, **objective},
        model={"shape": {"model_type": f"{name}_{kind}", **SHAPES[kind], **more}},
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": steps, "learning_rate": 2e-3, "warmup": 50, "decay": "cosine"},
        evaluation={"every": steps // 2, "keep": "tokens_0"},
        **MINUTES,
    )
