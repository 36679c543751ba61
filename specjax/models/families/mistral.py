"""Mistral: Llama with a sliding window in every layer."""

from __future__ import annotations

from typing import Any

from specjax.models.causal import CausalConfig
from specjax.models.families import llama
from specjax.models.families.generation import GENERATION
from specjax.models.families.schema import Schema, only, raw, read, shown, size

SCHEMA = Schema(
    fields=llama.FIELDS
    | {
        "num_key_value_heads": size(8),
        "max_position_embeddings": size(4096 * 32),
        "sliding_window": size(None),
        "layer_types": raw(),
        # Hugging Face's class has no biases, whatever these say.
        "attention_bias": only(False),
        "mlp_bias": only(False),
    },
    harmless=llama.HARMLESS,
)
WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""


def config_from_hf(
    hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    found = read(SCHEMA, {"sliding_window": WINDOW} | hf, GENERATION)
    window, layers = found["sliding_window"], found["num_hidden_layers"]
    # Hugging Face's masks do not look at this field; its caches do.
    kinds = ["sliding_attention" if window else "full_attention"] * layers
    if found["layer_types"] not in (None, kinds):
        raise ValueError(
            f"layer_types is {shown(found['layer_types'])}; with sliding_window {window} every one"
            f" of the {layers} layers is {kinds[0]!r}"
        )
    windows = (window,) * layers if window else ()
    return llama.causal_config(found, hf, generation, dtype, windows=windows)


def config_to_hf(config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    shape, ends = llama.config_to_hf(config)
    return shape | {"sliding_window": config.windows[0] if config.windows else None}, ends


FAMILY = llama.relative(config_from_hf=config_from_hf, config_to_hf=config_to_hf)
