"""Qwen2 (query, key and value biases) and Qwen3 (query and key norms instead)."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.models.causal import CausalConfig
from specjax.models.families import llama

ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
QWEN3_HEAD = 128
"""Head width of a Qwen3 configuration that does not say."""


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any], dtype: Any) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    third = hf["model_type"] == "qwen3"
    if third:
        hf = {"head_dim": QWEN3_HEAD, **hf}
    config = llama.config_from_hf(hf, generation, dtype)
    return dataclasses.replace(
        config,
        qkv_bias=config.qkv_bias if third else True,
        out_bias=config.out_bias if third else False,
        qk_norm=third,
        windows=_windows(hf, config.num_layers),
    )


def _windows(hf: dict[str, Any], layers: int) -> tuple[int, ...]:
    """Layers from `max_window_layers` on slide, where the configuration turns that on."""
    window = hf.get("sliding_window")
    if not hf.get("use_sliding_window", False) or not window:
        return ()
    kinds = hf.get("layer_types")
    if kinds:
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = hf.get("max_window_layers", layers)
    return tuple(window if index >= first else 0 for index in range(layers))


def config_to_hf(config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    shape, ends = llama.config_to_hf(config)
    windows = config.layer_windows
    shape |= {
        "architectures": [ARCHITECTURES[config.family]],
        "attention_bias": config.qkv_bias,
        "use_sliding_window": any(windows),
        "sliding_window": max(windows) or None,
        "layer_types": ["sliding_attention" if w else "full_attention" for w in windows],
    }
    if config.family == "qwen2":
        # It has these by definition, and no say in them.
        del shape["attention_bias"], shape["head_dim"]
    return shape, ends


FAMILY = llama.relative(config_from_hf=config_from_hf, config_to_hf=config_to_hf)
