"""GLM and Command R, whose rotations turn neighbours of a head: numbers 2 i and 2 i + 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import (
    BIAS,
    FUSED_FEED_FORWARD,
    LAYER,
    SANDWICH,
    Decoder,
    rotate_windows_only,
    whole,
)
from specjax.hf.families.layer_types import WINDOWS, every
from specjax.hf.families.schema import ALL_FULL, flag, number, size
from specjax.models.causal import CausalConfig
from specjax.models.positions import Rope

ENDS = [151_329, 151_336, 151_338]
"""Where texts of GLM end unless the configuration says it."""


@FAMILIES.register("glm")
class Glm(Decoder[CausalConfig]):
    """GLM-4 of 2024: half of each head is rotated, gate and way up are one tensor."""

    schema = Decoder.schema.derive(
        "glm", **BIAS, **ALL_FULL, partial_rotary_factor=number(0.5), head_dim=size(128)
    )
    tensors = whole({**LAYER, **FUSED_FEED_FORWARD})

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        ends = ENDS if hf.get("eos_token_id") is None else hf["eos_token_id"]
        return super().config_from_hf({**hf, "eos_token_id": ends}, generation, dtype)

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        rope = rotary.partial_rope_from_hf(fields, d_head)
        return dataclasses.replace(rope, interleaved=True)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"out_bias": False}

    def to_fields(self, config: Any) -> dict[str, Any]:
        width = rotary.get_rope(config).width
        return super().to_fields(config) | {
            "partial_rotary_factor": rotary.share_to_hf(width, config.d_head)
        }


@FAMILIES.register("glm4")
class Glm4(Glm):
    """GLM-4-0414: GLM with norms before and after each sublayer."""

    schema = Glm.schema.derive("glm4")
    constants: ClassVar[dict[str, Any]] = {"post_norm": True}
    tensors = whole(
        {
            **SANDWICH,
            **FUSED_FEED_FORWARD,
            "ff_norm": "post_attention_layernorm",
            "attention_post_norm": "post_self_attn_layernorm",
            "ff_post_norm": "post_mlp_layernorm",
        }
    )


@FAMILIES.register("cohere")
class Cohere(Decoder[CausalConfig]):
    """Command R: one layer norm without bias before attention and feed-forward side by side."""

    schema = Decoder.schema.without("rms_norm_eps").derive(
        "cohere",
        **BIAS,
        **ALL_FULL,
        rope_theta=number(500_000.0),
        layer_norm_eps=number(1e-5),
        logit_scale=number(0.0625),
        use_qk_norm=flag(False),
    )
    words: ClassVar[dict[str, str]] = Decoder.words | {
        "eps": "layer_norm_eps",
        "logit_scale": "logit_scale",
        "head_norms": "use_qk_norm",
    }
    constants: ClassVar[dict[str, Any]] = {
        "rms_norm": False,
        "norm_bias": False,
        "parallel": True,
        "shared_norm": True,
    }

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        return dataclasses.replace(super().rope(fields, d_head), interleaved=True)


@FAMILIES.register("cohere2")
class Cohere2(Cohere):
    """Command R7B and A: layers with windows, and every fourth without window and rotation."""

    schema = Cohere.schema.without("use_qk_norm").derive(
        "cohere2", **WINDOWS, rope_theta=number(10_000.0), sliding_window_pattern=size(4)
    )
    words: ClassVar[dict[str, str]] = {
        attribute: field for attribute, field in Cohere.words.items() if attribute != "head_norms"
    }
    windows = "mixed"
    needs_window = True

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(fields["sliding_window_pattern"], fields)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        ropes = rotate_windows_only(attributes, fields["num_hidden_layers"])
        return attributes | {"ropes": ropes}
