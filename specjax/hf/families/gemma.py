"""Gemma 2, and what Gemma 3 (`gemma3.py`) shares with it."""

from __future__ import annotations

import abc
import math
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import KINDS, windows_of, windows_to_hf
from specjax.hf.families.schema import (
    Field,
    Schema,
    choice,
    flag,
    number,
    raw,
    read,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.layers import ACTIVATIONS

WINDOW = 4096
"""What a configuration without the field `sliding_window` means; null means none."""

FIELDS: dict[str, Field] = {name: f for name, f in llama.FIELDS.items() if name != "hidden_act"} | {
    "hidden_activation": choice("gelu_pytorch_tanh", ACTIVATIONS),
    "num_key_value_heads": size(4),
    "head_dim": size(256),
    "tie_word_embeddings": flag(True),
    "attention_bias": flag(False),
    "query_pre_attn_scalar": size(256),
    "sliding_window": size(None),
    "layer_types": raw(),
    "attn_logit_softcapping": number(None),
    "final_logit_softcapping": number(None),
    "use_bidirectional_attention": Field(None, "false", lambda value: value is False),
}


class Gemma(llama.Llama[CausalConfig]):
    """Norms around each sublayer, scaled embeddings, every n-th layer with all keys."""

    @abc.abstractmethod
    def full_every(self, fields: dict[str, Any]) -> int:
        """Number of layers of which the last has all keys, where `layer_types` does not say."""

    def read(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The checked fields, those of the rotation as Llama has them."""
        return read(self.schema, {"sliding_window": WINDOW} | hf, GENERATION)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = self.read(hf)
        layers, kinds = fields["num_hidden_layers"], fields["layer_types"]
        if kinds is None:
            every = self.full_every(fields)
            kinds = [KINDS[(layer + 1) % every > 0] for layer in range(layers)]
        windows = windows_of(kinds, layers, fields["sliding_window"], "sliding_window")
        return llama.causal_config(
            fields | {"hidden_act": fields["hidden_activation"]},
            hf,
            generation,
            dtype,
            windows=windows,
            qkv_bias=fields["attention_bias"],
            out_bias=fields["attention_bias"],
            unit_offset=True,
            post_norm=True,
            query_scale=fields["query_pre_attn_scalar"] ** -0.5,
            embedding_scale=math.sqrt(fields["hidden_size"]),
            logit_cap=fields["final_logit_softcapping"] or 0.0,
            **self.differences(fields, windows),
        )

    @abc.abstractmethod
    def differences(self, fields: dict[str, Any], windows: tuple[int, ...]) -> dict[str, Any]:
        """In what the shape is not the other's."""

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        shape |= windows_to_hf(config) | {
            "hidden_activation": shape.pop("hidden_act"),
            "query_pre_attn_scalar": round(config.layer_query_scales[0] ** -2),
            "final_logit_softcapping": config.logit_cap or None,
            "attn_logit_softcapping": config.attention_cap or None,
        }
        # transformers refuses a configuration without a window, even where no layer has one.
        shape["sliding_window"] = shape["sliding_window"] or config.max_positions
        return shape, ends


@FAMILIES.register("gemma2")
class Gemma2(Gemma):
    """Norms around each sublayer, soft caps, windows in every other layer (Gemma team 2024)."""

    schema = Schema(
        FIELDS | {"max_position_embeddings": size(8192)},
        harmless=llama.HARMLESS,
        declared=declared_by("gemma2"),
    )

    def read(self, hf: dict[str, Any]) -> dict[str, Any]:
        caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
        return super().read(caps | hf)

    def full_every(self, fields: dict[str, Any]) -> int:
        return 2

    def differences(self, fields: dict[str, Any], windows: tuple[int, ...]) -> dict[str, Any]:
        return {"attention_cap": fields["attn_logit_softcapping"] or 0.0}
