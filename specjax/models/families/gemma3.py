"""Gemma 3: its text models, and the text part of those that also see."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.models.causal import CausalConfig
from specjax.models.families import gemma, rotary
from specjax.models.families.generation import GENERATION, TOKENS
from specjax.models.families.layer_types import KINDS
from specjax.models.families.schema import (
    CAUSAL,
    COMMON,
    NEEDED,
    Schema,
    flag,
    number,
    only,
    raw,
    read,
    shown,
    size,
)


@FAMILIES.register("gemma3_text")
class Gemma3Text(gemma.Gemma):
    """Gemma 2 with norms of queries and keys for soft caps, and two rotations (Gemma team 2025)."""

    schema = Schema(
        gemma.FIELDS
        | {
            "max_position_embeddings": size(131_072),
            "rope_theta": number(1_000_000.0),
            "rope_local_base_freq": number(10_000.0),
            "sliding_window_pattern": size(6),
            # Hugging Face's class has the field and does nothing with it.
            "attn_logit_softcapping": only(None),
        },
        # What transformers notes beside the `layer_types` that it made of it.
        harmless=gemma.HARMLESS | {"_sliding_window_pattern"},
    )

    def read(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The rotation of layers that have all keys is what other families have for all."""
        fields = super().read(hf)
        both = {} if fields["rope_parameters"] is None else fields["rope_parameters"]
        named = isinstance(both, dict) and not set(both) - set(KINDS)
        if not named or not all(isinstance(one, dict | None) for one in both.values()):
            raise ValueError(
                f"rope_parameters is {shown(both)}; it must hold an object for each of"
                f" {' and '.join(map(repr, KINDS))}"
            )
        scaling = {} if fields["rope_scaling"] is None else fields["rope_scaling"]
        if not isinstance(scaling, dict):
            raise ValueError(f"rope_scaling is {shown(scaling)}; it must be an object, or null")
        # As in Hugging Face, a type by its older name `type` does not count beside this one.
        full, sliding = ({"rope_type": "default", **(both.get(kind) or {})} for kind in KINDS)
        return fields | {
            "rope_parameters": full | scaling,
            "rope_scaling": None,
            "sliding_rope": {"rope_theta": fields["rope_local_base_freq"]} | sliding,
        }

    def full_every(self, fields: dict[str, Any]) -> int:
        return fields["sliding_window_pattern"]

    def differences(self, fields: dict[str, Any], windows: tuple[int, ...]) -> dict[str, Any]:
        local = fields | {"rope_parameters": fields["sliding_rope"]}
        sliding = rotary.rope_from_hf(local, fields["head_dim"])
        if sliding.kind != "default":
            raise ValueError(
                f"rope_type of 'sliding_attention' is {sliding.kind!r}; only layers with all keys"
                " may have one other than 'default'"
            )
        full = rotary.rope_from_hf(fields, fields["head_dim"])
        ropes = tuple(sliding if window else full for window in windows)
        return {"qk_norm": True, "ropes": ropes}

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        local = [rope for rope, window in zip(config.ropes, config.windows, strict=True) if window]
        own = {"architectures": ["Gemma3ForCausalLM"]}
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
        return Gemma3Text().config_from_hf(DEFAULTS | text | whole, generation, dtype)
