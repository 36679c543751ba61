"""Shared recipes of parallel drafters: shapes by kind of target, and a short training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MINUTES
from specjax.runtime.errors import UserError

SHAPES = {
    "t5": {
        "model_type": "dflash_t5",
        "block_size": 8,
        "draft_vocab_size": 3000,
        "num_decoder_layers": 3,
        "d_model": 192,
        "d_ff": 512,
        "num_heads": 3,
    },
    "llama": {
        "model_type": "dflash_llama",
        "block_size": 8,
        "draft_vocab_size": 2000,
        "num_hidden_layers": 3,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
    "published": {"model_type": "dflash", "block_size": 8, "mask_token_id": 0},
}
"""Half as wide as the small targets that a laptop can train for, in Hugging Face's words.

Published ones are as wide as the target; their mask is the padding of most.
"""


def train_blocks(
    name: str,
    kind: str,
    objective: Mapping[str, Any],
    own: Mapping[str, Any] | None = None,
    published: Mapping[str, Any] | None = None,
) -> ConfigDict:
    """The training of a drafter for a kind of target, with fields of its own shape.

    Fields of the published layout have other names: `published`.

    Raises:
      UserError: when there is no such kind.
    """
    if kind not in SHAPES:
        raise UserError(
            f"--config=...:{kind!r} is no kind of target; known are {', '.join(SHAPES)}"
        )
    fields = (published if kind == "published" else own) or {}
    return train_config(
        name=name,
        objective={"name": "dflash", "anchors": 8, **objective},
        model={"shape": {**SHAPES[kind], **fields}},
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": 750, "learning_rate": 2e-3, "warmup": 50, "decay": "cosine"},
        evaluation={"every": 375, "keep": "tokens_0"},
        **MINUTES,
    )
