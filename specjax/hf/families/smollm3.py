"""SmolLM3: Llama without rotation in some layers."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import KINDS, windows_of, windows_to_hf
from specjax.hf.families.schema import Schema, flag, number, raw, read, shown, size
from specjax.models.causal import CausalConfig


def _rotated(fields: dict[str, Any]) -> list[bool]:
    """Whether each layer rotates; `no_rope_layers` has, whatever its name says, a 1 where it does.

    Every `no_rope_layer_interval`-th does not where the configuration lists none.
    """
    layers, listed = fields["num_hidden_layers"], fields["no_rope_layers"]
    if listed is None:
        every = fields["no_rope_layer_interval"]
        return [(layer + 1) % every > 0 for layer in range(layers)]
    flags = isinstance(listed, list) and all(flag in (0, 1) for flag in listed)
    if not flags or len(listed) < layers:
        raise ValueError(
            f"no_rope_layers is {shown(listed)}; it must have a 0 or 1 for each of the {layers}"
            " layers"
        )
    return [bool(flag) for flag in listed[:layers]]


@FAMILIES.register("smollm3")
class SmolLM3(llama.Llama[CausalConfig]):
    """Llama without rotation in some layers (Yang et al. 2025, "RoPE to NoPE and back again")."""

    schema = Schema(
        fields=llama.FIELDS
        | {
            "num_key_value_heads": size(4),
            "max_position_embeddings": size(32_768),
            "rope_theta": number(2_000_000.0),
            "tie_word_embeddings": flag(True),
            "attention_bias": flag(False),
            "mlp_bias": flag(False),
            "no_rope_layers": raw(),
            "no_rope_layer_interval": size(4),
            "use_sliding_window": flag(False),
            "sliding_window": size(None),
            "layer_types": raw(),
        },
        harmless=llama.HARMLESS,
        declared=declared_by("smollm3"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        rotated = _rotated(fields)
        window = fields["sliding_window"] if fields["use_sliding_window"] else None
        kinds = fields["layer_types"]
        if kinds is None:
            kinds = [KINDS[window is not None and not rotates] for rotates in rotated]
        needed = "sliding_window, and use_sliding_window true"
        config = llama.causal_config(
            fields,
            hf,
            generation,
            dtype,
            windows=windows_of(kinds, len(rotated), window, needed),
            qkv_bias=fields["attention_bias"],
            out_bias=fields["attention_bias"],
            ff_bias=fields["mlp_bias"],
        )
        ropes = tuple(config.rope if rotates else None for rotates in rotated)
        return config if all(rotated) else dataclasses.replace(config, ropes=ropes)

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        own = {
            "architectures": ["SmolLM3ForCausalLM"],
            "no_rope_layers": [int(rope is not None) for rope in config.layer_ropes],
            "use_sliding_window": any(config.windows),
        }
        return shape | own | windows_to_hf(config), ends
