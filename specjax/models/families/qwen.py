"""Qwen2 (query, key and value biases) and Qwen3 (query and key norms instead)."""

from __future__ import annotations

from typing import Any

from specjax.models.causal import CausalConfig
from specjax.models.families import llama
from specjax.models.families.generation import GENERATION
from specjax.models.families.schema import Field, Schema, flag, only, raw, read, shown, size

ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""
KINDS = ("full_attention", "sliding_attention")

FIELDS: dict[str, Field] = llama.FIELDS | {
    "num_key_value_heads": size(32),
    "max_position_embeddings": size(32_768),
    "use_sliding_window": flag(False),
    "sliding_window": size(None),
    "max_window_layers": size(28, least=0),
    "layer_types": raw(),
    "mlp_bias": only(False),
}
SCHEMAS = {
    # Qwen2's biases are where they are, whatever `attention_bias` says.
    "qwen2": Schema(FIELDS, harmless=llama.HARMLESS | {"attention_bias"}),
    "qwen3": Schema(
        FIELDS | {"head_dim": size(128), "attention_bias": flag(False)}, harmless=llama.HARMLESS
    ),
}


def config_from_hf(
    hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    family = hf["model_type"]
    found = read(SCHEMAS[family], {"sliding_window": WINDOW} | hf, GENERATION)
    third = family == "qwen3"
    return llama.causal_config(
        found,
        hf,
        generation,
        dtype,
        qkv_bias=found["attention_bias"] if third else True,
        out_bias=found["attention_bias"] if third else False,
        qk_norm=third,
        windows=_windows(found),
    )


def _windows(found: dict[str, Any]) -> tuple[int, ...]:
    """Layers from `max_window_layers` on slide, where the configuration turns that on."""
    window = found["sliding_window"] if found["use_sliding_window"] else None
    layers = found["num_hidden_layers"]
    kinds = found["layer_types"]
    if kinds is None:
        first = found["max_window_layers"]
        kinds = [KINDS[window is not None and layer >= first] for layer in range(layers)]
    known = isinstance(kinds, list) and all(each in KINDS for each in kinds)
    if not known or len(kinds) != layers:
        raise ValueError(
            f"layer_types is {shown(kinds)}; it must name each of the {layers} layers"
            f" {' or '.join(map(repr, KINDS))}"
        )
    slides = [kind == "sliding_attention" for kind in kinds]
    if any(slides) and window is None:
        raise ValueError(
            f"layer_types is {shown(kinds)}; layers that slide need sliding_window, and"
            " use_sliding_window true"
        )
    return tuple(window if each else 0 for each in slides) if any(slides) else ()


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
    del shape["mlp_bias"]  # it has none
    if config.family == "qwen2":
        del shape["attention_bias"]  # it has these by definition, and no say in them
    return shape, ends


FAMILY = llama.relative(config_from_hf=config_from_hf, config_to_hf=config_to_hf)
