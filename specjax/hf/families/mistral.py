"""Mistral: Llama with a sliding window in every layer."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import same_windows
from specjax.hf.families.schema import Schema, raw, read, size
from specjax.models.causal import CausalConfig

WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""


@FAMILIES.register("mistral")
class Mistral(llama.Llama[CausalConfig]):
    """Llama with a sliding window in every layer."""

    schema = Schema(
        fields=llama.FIELDS
        | {
            "num_key_value_heads": size(8),
            "max_position_embeddings": size(4096 * 32),
            "sliding_window": size(None),
            "layer_types": raw(),
        },
        harmless=llama.HARMLESS,
        declared=declared_by("mistral"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, {"sliding_window": WINDOW} | hf, GENERATION)
        windows = same_windows(fields)
        return llama.causal_config(fields, hf, generation, dtype, windows=windows)

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        return shape | {"sliding_window": config.windows[0] if config.windows else None}, ends
