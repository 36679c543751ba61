"""Parallel feature drafters in words like Hugging Face's: their layers, as Llama's, and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import causal, corrections, eagle, on_target
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.llama import Llama
from specjax.hf.families.on_target import FIELDS, OnLlama, OnT5, OnTargetFamily
from specjax.hf.families.schema import flag, size
from specjax.hf.families.t5 import T5Family
from specjax.models.base import LanguageModel
from specjax.models.dflash import DFlash, DFlashCausalConfig, DFlashT5Config

LAYERS = 5
"""Default layers of a drafter, and of the target to read (published)."""

BLOCK = 16
"""Default tokens of a block (published)."""


def layers_read(depth: int) -> list[int]:
    """Published layers of a target; of a shallow one those that a drafter of one layer reads."""
    return eagle.layers_read(depth) if depth < eagle.FEW else published_layers(depth, LAYERS)


def published_layers(depth: int, count: int) -> list[int]:
    """Layers at equal distances, from the second to the last but two; one is the middle one.

    Layers only differ if the target has enough of them (z-lab/dflash, SGLang).
    """
    if count == 1:
        return [depth // 2 + 1]
    return [1 + round(1 + i * (depth - 4) / (count - 1)) for i in range(count)]


WORDS = on_target.WORDS | {
    "block_size": "block_size",
    "anchor_first": "anchor_first",
    "is_causal": "block_is_causal",
}

BLOCK_FIELDS = {
    "block_size": size(BLOCK, least=2),
    "anchor_first": flag(False),
    "block_is_causal": flag(False),
    **corrections.FIELDS,
}
"""Fields of a shape about its blocks."""

_OUTSIDE: Tensors = {
    **on_target.TENSORS,
    "mask": "mask_embedding",
    "fused_norm": "hidden_norm",
    "enter": "embed_proj",
}

_T5_LAYER: Tensors = {
    "attention_norm": "input_layernorm",
    "cross_norm": "cross_attention_layernorm",
    "ff_norm": "post_attention_layernorm",
    **causal.ATTENTION,
    **{f"cross_attention.{w}": f"cross_attn.{w}_proj" for w in "qo"},
    **causal.FEED_FORWARD,
    **corrections.CONVOLUTIONS,
}


class _InBlocks(OnTargetFamily):
    """Shared parts of both kinds."""

    model = DFlash

    def layers_read(self, depth: int) -> list[int]:
        return layers_read(depth)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        width = fields["d_model"] if "d_model" in fields else fields["hidden_size"]
        return super().from_fields(fields, hf) | {
            "correction": corrections.read_correction(fields),
            "convolution": corrections.read_convolution(fields, width),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | corrections.written_corrections(config)

    def table(self, config: Any) -> Tensors:
        return {**self.tensors, **corrections.correction_tensors(config)}


@FAMILIES.register("dflash_t5")
class DFlashT5Family(_InBlocks, OnT5, T5Family[DFlashT5Config]):
    """Parallel feature drafters of targets with an encoder, with attention to its states."""

    shape = DFlashT5Config
    schema = T5Family.schema.derive(**FIELDS, **BLOCK_FIELDS)
    words: ClassVar[dict[str, str]] = T5Family.words | WORDS
    tensors: ClassVar[Tensors] = {**_OUTSIDE, **nest_modules("layers_{}", "layers.{}", _T5_LAYER)}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {
            "num_decoder_layers": min(LAYERS, target.info.depth)
        }


@FAMILIES.register("dflash_llama")
class DFlashLlama(_InBlocks, OnLlama, Llama[DFlashCausalConfig]):
    """Parallel feature drafters of decoder-only targets with rotary positions."""

    shape = DFlashCausalConfig
    schema = Llama.schema.derive(**FIELDS, **BLOCK_FIELDS, use_qk_norm=flag(False))
    words: ClassVar[dict[str, str]] = Llama.words | WORDS | {"qk_norm": "use_qk_norm"}
    tensors: ClassVar[Tensors] = {
        **_OUTSIDE,
        **nest_modules("layers_{}", "layers.{}", {**causal.LAYER, **corrections.CONVOLUTIONS}),
    }

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {
            "num_hidden_layers": min(LAYERS, target.info.depth),
            "use_qk_norm": target.config.qk_norm,
        }
