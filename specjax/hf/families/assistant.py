"""Drafters of this project that read their target's caches, in words like Hugging Face's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import causal, on_target
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.llama import Llama
from specjax.hf.families.on_target import FIELDS, WORDS, OnLlama, OnT5, OnTargetFamily
from specjax.hf.families.t5 import T5Family
from specjax.models.assistant import Assistant
from specjax.models.assistant_modules import AssistantCausalConfig, AssistantT5Config
from specjax.models.base import LanguageModel
from specjax.models.encoder_decoder import EncoderDecoder

_OUTSIDE: Tensors = {
    **on_target.TENSORS,
    "state_norm": "hidden_norm",
    "join": "pre_projection",
    "next_state": "post_projection",
    "output_embedding": "draft_embed_tokens.weight",
}

_T5_LAYER: Tensors = {
    "attention_norm": "input_layernorm",
    "cross_norm": "cross_attention_layernorm",
    "ff_norm": "post_attention_layernorm",
    **causal.ATTENTION,
    **{f"cross_attention.{w}": f"cross_attn.{w}_proj" for w in "qo"},
    **causal.FEED_FORWARD,
}


class _OnCaches(OnTargetFamily):
    """Shared parts of both kinds."""

    model = Assistant

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        if len(layers := fields["target_layers"]) != 1:
            raise ValueError(
                f"target_layers is {list(layers)}; it must be one layer, whose states are read"
            )
        return super().from_fields(fields, hf)

    def layers_read(self, depth: int) -> list[int]:
        return [depth]


@FAMILIES.register("assistant_t5")
class AssistantT5Family(_OnCaches, OnT5, T5Family[AssistantT5Config]):
    """Drafters of targets with an encoder, whose last layer's keys and values they read."""

    shape = AssistantT5Config
    schema = T5Family.schema.derive(**FIELDS)
    words: ClassVar[dict[str, str]] = T5Family.words | WORDS
    tensors: ClassVar[Tensors] = {**_OUTSIDE, **nest_modules("layers_{}", "layers.{}", _T5_LAYER)}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        words = super().get_target_fields(target) | {"num_decoder_layers": 1}
        if isinstance(target, EncoderDecoder):
            words |= dict(zip(("num_heads", "d_kv"), target.cross_heads, strict=True))
        return words


@FAMILIES.register("assistant_llama")
class AssistantLlama(_OnCaches, OnLlama, Llama[AssistantCausalConfig]):
    """Drafters of decoder-only targets with rotary positions, whose caches they read."""

    shape = AssistantCausalConfig
    schema = Llama.schema.derive(**FIELDS)
    words: ClassVar[dict[str, str]] = Llama.words | WORDS
    tensors: ClassVar[Tensors] = {
        **_OUTSIDE,
        **nest_modules("layers_{}", "layers.{}", causal.LAYER),
    }

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {"num_hidden_layers": 1}
