"""Gemma 1, whose layers are Llama's."""

from __future__ import annotations

import math
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import ALL_FULL, Field, Schema, choice, flag, read, size
from specjax.models.causal import CausalConfig
from specjax.models.layers import ACTIVATIONS

TANH = "gelu_pytorch_tanh"


@FAMILIES.register("gemma")
class Gemma1(llama.Llama[CausalConfig]):
    """Gemma 1 and CodeGemma: Llama with GELU, scaled embeddings and norms around 1."""

    schema = Schema(
        fields=llama.FIELDS
        | ALL_FULL  # transformers' cache looks at them, though the class declares neither
        | {
            "num_key_value_heads": size(16),
            "head_dim": size(256),
            "max_position_embeddings": size(8192),
            "hidden_act": choice(TANH, ACTIVATIONS),
            "tie_word_embeddings": flag(True),
            "attention_bias": flag(False),
            "use_bidirectional_attention": Field(None, "false", lambda value: value is False),
        },
        # Unlike of Gemma 2 transformers reads `hidden_act`, even where `hidden_activation` is.
        harmless=llama.HARMLESS,
        declared=declared_by("gemma"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        if fields["hidden_act"] == "gelu":  # of the first files; the models have tanh
            fields["hidden_act"] = TANH
        bias = fields["attention_bias"]
        return llama.causal_config(
            fields,
            hf,
            generation,
            dtype,
            qkv_bias=bias,
            out_bias=bias,
            unit_offset=True,
            embedding_scale=math.sqrt(fields["hidden_size"]),
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        shape.pop("mlp_bias", None)  # it has none
        return shape, ends
