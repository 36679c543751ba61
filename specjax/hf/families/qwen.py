"""Qwen2 (query, key and value biases) and Qwen3 (query and key norms instead)."""

from __future__ import annotations

import abc
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import KINDS, windows_of, windows_to_hf
from specjax.hf.families.schema import Field, Schema, flag, raw, read, size
from specjax.models.causal import CausalConfig

WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""

FIELDS: dict[str, Field] = llama.FIELDS | {
    "num_key_value_heads": size(32),
    "max_position_embeddings": size(32_768),
    "use_sliding_window": flag(False),
    "sliding_window": size(None),
    "max_window_layers": size(28, least=0),
    "layer_types": raw(),
}


def _windows(fields: dict[str, Any]) -> tuple[int, ...]:
    """Layers from `max_window_layers` on slide, where the configuration turns that on."""
    window = fields["sliding_window"] if fields["use_sliding_window"] else None
    layers = fields["num_hidden_layers"]
    kinds = fields["layer_types"]
    if kinds is None:
        first = fields["max_window_layers"]
        kinds = [KINDS[window is not None and layer >= first] for layer in range(layers)]
    return windows_of(kinds, layers, window, "sliding_window, and use_sliding_window true")


class _Qwen(llama.Llama[CausalConfig]):
    """What both have: layers that may slide, and no biases in their feed-forward parts."""

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, {"sliding_window": WINDOW} | hf, GENERATION)
        more = {"windows": _windows(fields), **self.differences(fields)}
        return llama.causal_config(fields, hf, generation, dtype, **more)

    @abc.abstractmethod
    def differences(self, fields: dict[str, Any]) -> dict[str, bool]:
        """In what the attention's shape is not Llama's."""

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        shape |= windows_to_hf(config) | {"use_sliding_window": any(config.windows)}
        return shape, ends


@FAMILIES.register("qwen2")
class Qwen2(_Qwen):
    """Llama with biases of queries, keys and values."""

    schema = Schema(FIELDS, harmless=llama.HARMLESS, declared=declared_by("qwen2"))

    def differences(self, fields: dict[str, Any]) -> dict[str, bool]:
        return {"qkv_bias": True}


@FAMILIES.register("qwen3")
class Qwen3(_Qwen):
    """Llama with norms of queries and keys."""

    schema = Schema(
        FIELDS | {"head_dim": size(128), "attention_bias": flag(False)},
        harmless=llama.HARMLESS,
        declared=declared_by("qwen3"),
    )

    def differences(self, fields: dict[str, Any]) -> dict[str, bool]:
        bias = fields["attention_bias"]
        return {"qkv_bias": bias, "out_bias": bias, "qk_norm": True}
