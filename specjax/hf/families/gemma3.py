"""Gemma 3: its text models, and the text part of those that also see."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import gemma, llama, rotary
from specjax.hf.families.declared import declared_by, part
from specjax.hf.families.generation import GENERATION, TOKENS
from specjax.hf.families.schema import (
    CAUSAL,
    COMMON,
    NEEDED,
    Schema,
    flag,
    only,
    raw,
    read,
    shown,
    size,
)
from specjax.models.causal import CausalConfig


@FAMILIES.register("gemma3_text")
class Gemma3Text(gemma.Gemma):
    """Gemma 2 with norms of queries and keys for soft caps, and two rotations (Gemma team 2025)."""

    schema = Schema(
        gemma.FIELDS
        | rotary.TWO_KINDS
        | {
            "max_position_embeddings": size(131_072),
            "sliding_window_pattern": size(6),
            # Hugging Face's class has the field and does nothing with it.
            "attn_logit_softcapping": only(None),
        },
        harmless=llama.HARMLESS,
        declared=declared_by("gemma3_text"),
    )

    def read(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The rotation of layers that have all keys is what other families have for all."""
        return rotary.of_two_kinds(super().read(hf))

    def full_every(self, fields: dict[str, Any]) -> int:
        return fields["sliding_window_pattern"]

    def differences(self, fields: dict[str, Any], windows: tuple[int, ...]) -> dict[str, Any]:
        sliding = rotary.sliding_from_hf(fields, fields["head_dim"])
        full = rotary.rope_from_hf(fields, fields["head_dim"])
        ropes = tuple(sliding if window else full for window in windows)
        return {"qk_norm": True, "ropes": ropes}

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        both = zip(config.ropes, config.windows, strict=True)
        local = [rope for rope, window in both if rope and window]
        own: dict[str, Any] = {"architectures": ["Gemma3ForCausalLM"]}
        if local:
            own["rope_local_base_freq"] = local[0].theta
        return shape | own, ends


DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
}
"""Sizes that published `text_config` leave out, as Hugging Face's class has them."""


@FAMILIES.register("gemma3")
class Gemma3(Gemma3Text):
    """The text part of models that also see; it is exported as a text model."""

    schema = Schema(
        CAUSAL | {"text_config": raw(NEEDED), "tie_word_embeddings": flag(True)},
        harmless=COMMON
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
        declared=declared_by("gemma3"),
    )
    ignored = rf"{gemma.Gemma.ignored}|(model\.)?(vision_tower|multi_modal_projector)\..*"

    def named(self, tensor: str) -> str:
        for whole in ("language_model.model.", "model.language_model."):
            if tensor.startswith(whole):
                return self.prefix + tensor.removeprefix(whole)
        return tensor

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        text = fields["text_config"]
        if not isinstance(text, dict):
            raise ValueError(f"text_config is {shown(text)}; it must be an object")
        whole = {"model_type": "gemma3_text", "tie_word_embeddings": fields["tie_word_embeddings"]}
        whole |= {name: hf[name] for name in TOKENS if name in hf}
        with part("text_config"):
            return Gemma3Text().config_from_hf(DEFAULTS | text | whole, generation, dtype)
