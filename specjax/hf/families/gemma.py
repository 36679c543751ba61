"""Gemma 1 to 3: Llama with scaled embeddings and norms around 1, and what each adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, SANDWICH, Decoder, whole
from specjax.hf.families.generation import GENERATION, TOKENS
from specjax.hf.families.layer_types import WINDOWS, every
from specjax.hf.families.schema import (
    ALL_FULL,
    CAUSAL,
    COMMON,
    NEEDED,
    Field,
    Schema,
    choice,
    flag,
    format_value,
    number,
    only,
    part,
    raw,
    read,
    read_declared,
    size,
)
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
        fields = super().to_fields(config)
        return fields | {
            "query_pre_attn_scalar": round(config.layer_query_scales[0] ** -2),
            "final_logit_softcapping": config.logit_cap or None,
            "attn_logit_softcapping": config.attention_cap or None,
            # transformers refuses a configuration without a window, even where no layer has one.
            "sliding_window": fields["sliding_window"] or config.max_positions,
        }


@FAMILIES.register("gemma3_text")
class Gemma3Text(Gemma2):
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

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """The rotation of layers that have all keys is what other families have for all."""
        both = rotary.split_rope_kinds(fields)
        attributes = super().from_fields(both, hf)
        sliding, full = rotary.sliding_from_hf(both, attributes["d_head"]), attributes["rope"]
        ropes = tuple(sliding if window else full for window in attributes["windows"])
        return attributes | {"ropes": ropes}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, both = super().to_fields(config), zip(config.ropes, config.windows, strict=False)
        bases = [rope.theta for rope, window in both if window]
        return fields | ({"rope_local_base_freq": bases[0]} if bases else {})


SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
"""Fields that published `text_config` leave out."""


@FAMILIES.register("gemma3")
class Gemma3(Gemma3Text):
    """The text part of models that also see; it is exported as a text model."""

    schema = Schema(
        CAUSAL | {"text_config": raw(NEEDED), "tie_word_embeddings": flag(True)},
        COMMON
        | {
            "boi_token_id",
            "boi_token_index",
            "eoi_token_id",
            "eoi_token_index",
            "image_token_id",
            "image_token_index",
            "initializer_range",
            "mm_tokens_per_image",
            "vision_config",
        },
        "gemma3",
    )
    ignored = rf"{Decoder.ignored}|(model\.)?(vision_tower|multi_modal_projector)\..*"

    def rename_tensor(self, tensor: str) -> str:
        for part_of in ("language_model.model.", "model.language_model."):
            if tensor.startswith(part_of):
                return self.prefix + tensor.removeprefix(part_of)
        return tensor

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        with part("text_config"):
            return Gemma3Text().config_from_hf(_text_fields(fields, hf), generation, dtype)

    def export_base(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The fields of the text part, and those outside that are not about images."""
        images = {*self.schema.fields, *self.schema.harmless} - COMMON
        outside = {name: value for name, value in hf.items() if name not in images}
        return outside | _text_fields(read(self.schema, hf, GENERATION), hf)


def _text_fields(fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
    """The text part's fields, with those of the checked `fields` outside that count for it."""
    text = fields["text_config"]
    if not isinstance(text, dict):
        raise ValueError(f"text_config is {format_value(text)}; it must be an object")
    outside = {name: hf[name] for name in TOKENS if name in hf}
    outside["tie_word_embeddings"] = fields["tie_word_embeddings"]
    defaults = read_declared("gemma3_text").defaults
    sizes = {name: defaults[name] for name in SIZES}
    return sizes | text | outside | {"model_type": "gemma3_text"}
