"""Mistral: Llama with a sliding window in every layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.models.causal import CausalConfig
from specjax.models.families import llama

WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any], dtype: Any) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    config = llama.config_from_hf(hf, generation, dtype)
    window = hf.get("sliding_window", WINDOW)
    return dataclasses.replace(config, windows=(window,) * config.num_layers if window else ())


def config_to_hf(config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    shape, ends = llama.config_to_hf(config)
    return shape | {"sliding_window": config.windows[0] if config.windows else None}, ends


FAMILY = llama.relative(config_from_hf=config_from_hf, config_to_hf=config_to_hf)
