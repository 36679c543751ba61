"""Gemma 1 to 3: Llama with scaled embeddings and norms around 1, and what each adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, SANDWICH, Decoder, TwoRotations, find_local_base, whole
from specjax.hf.families.layer_types import WINDOWS, every
from specjax.hf.families.schema import (
    ALL_FULL,
    Field,
    choice,
    number,
    only,
    size,
)
from specjax.hf.families.text_parts import TextPart, make_schema
from specjax.models.causal import CausalConfig
from specjax.models.layers import ACTIVATIONS

TANH = "gelu_pytorch_tanh"

FALSE = Field(None, "false", lambda value: value is False)


@FAMILIES.register("gemma")
class Gemma1(Decoder[CausalConfig]):
    """Gemma 1 and CodeGemma: Llama with GELU, scaled embeddings and norms around 1."""

    # Unlike of Gemma 2 transformers reads `hidden_act`, even where `hidden_activation` is. Its
    # cache looks at windows, though the class declares none.
    schema = Decoder.schema.derive("gemma", **BIAS, **ALL_FULL, use_bidirectional_attention=FALSE)
    constants: ClassVar[dict[str, Any]] = {"unit_offset": True}

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        if fields["hidden_act"] == "gelu":  # of the first files; the models have tanh
            attributes["activation"] = TANH
        return attributes | {"embedding_scale": math.sqrt(fields["hidden_size"])}


@FAMILIES.register("gemma2")
class Gemma2(Decoder[CausalConfig]):
    """Norms around each sublayer, soft caps, windows in every other layer (Gemma team 2024)."""

    schema = Decoder.schema.without("hidden_act").derive(
        "gemma2",
        **BIAS,
        **WINDOWS,
        hidden_activation=choice(TANH, ACTIVATIONS),
        query_pre_attn_scalar=size(256),
        attn_logit_softcapping=number(None),
        final_logit_softcapping=number(None),
        use_bidirectional_attention=FALSE,
    )
    words: ClassVar[dict[str, str]] = Decoder.words | {"activation": "hidden_activation"}
    constants: ClassVar[dict[str, Any]] = {"unit_offset": True, "post_norm": True}
    tensors = whole(SANDWICH)
    windows = "mixed"
    needs_window = True

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(2, fields)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {
            "query_scale": fields["query_pre_attn_scalar"] ** -0.5,
            "embedding_scale": math.sqrt(fields["hidden_size"]),
            "logit_cap": fields["final_logit_softcapping"] or 0.0,
            "attention_cap": fields["attn_logit_softcapping"] or 0.0,
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {
            "query_pre_attn_scalar": round(config.layer_query_scales[0] ** -2),
            "final_logit_softcapping": config.logit_cap or None,
            "attn_logit_softcapping": config.attention_cap or None,
        }


@FAMILIES.register("gemma3_text")
class Gemma3Text(TwoRotations, Gemma2):
    """Gemma 2 with norms of queries and keys for soft caps, and two rotations (Gemma team 2025)."""

    schema = Gemma2.schema.derive(
        "gemma3_text",
        **rotary.TWO_KINDS,
        sliding_window_pattern=size(6),
        # Hugging Face's class declares the field and ignores it.
        attn_logit_softcapping=only(None),
    )
    architecture = "Gemma3ForCausalLM"
    constants: ClassVar[dict[str, Any]] = Gemma2.constants | {"qk_norm": True}

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(fields["sliding_window_pattern"], fields)

    def to_fields(self, config: Any) -> dict[str, Any]:
        base = find_local_base(config)
        return super().to_fields(config) | ({"rope_local_base_freq": base} if base else {})


@FAMILIES.register("gemma3")
class Gemma3(TextPart):
    """The text part of models that also see; it is exported as a text model."""

    schema = make_schema(
        "gemma3",
        (
            "boi_token_id",
            "boi_token_index",
            "eoi_token_id",
            "eoi_token_index",
            "image_token_id",
            "image_token_index",
            "initializer_range",
            "mm_tokens_per_image",
        ),
    )
    families: ClassVar[dict[str, str]] = {"gemma3_text": "gemma3_text"}
    ignored = rf"{Decoder.ignored}|(model\.)?(vision_tower|multi_modal_projector)\..*"
