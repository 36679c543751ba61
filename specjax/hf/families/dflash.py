"""Parallel feature drafters in words like Hugging Face's: their layers, as Llama's, and blocks."""

from __future__ import annotations

import abc
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import eagle
from specjax.hf.families.family import Stored
from specjax.hf.families.llama import Llama, layer_names
from specjax.hf.families.on_target import FIELDS, OnLlama, OnT5, OnTargetFamily
from specjax.hf.families.schema import flag, size
from specjax.hf.families.t5 import T5Family
from specjax.models.base import LanguageModel, Where
from specjax.models.dflash import DFlash, DFlashCausalConfig, DFlashT5Config

LAYERS = 5
"""Of a drafter, and target layers that it reads, where its shape does not say (published)."""

BLOCK = 16
"""Tokens of a block where its shape does not say (published)."""


def layers_read(depth: int) -> list[int]:
    """Published layers of a target; of a shallow one those that a drafter of one layer reads."""
    return eagle.layers_read(depth) if depth < eagle.FEW else published_layers(depth, LAYERS)


def published_layers(depth: int, count: int) -> list[int]:
    """So many at equal distances, from the second to the last but two; one is the middle one.

    Of several none is there twice only where the target has enough (z-lab/dflash, SGLang).
    """
    if count == 1:
        return [depth // 2 + 1]
    return [1 + round(1 + i * (depth - 4) / (count - 1)) for i in range(count)]


class _InBlocks(OnTargetFamily):
    """What both kinds have in common."""

    model = DFlash

    def own_fields(self, hf: dict[str, Any]) -> dict[str, Any]:
        return {"block_size": hf.get("block_size", BLOCK)}

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        return words | {"block_size": config.block_size}, generation

    def layers_read(self, depth: int) -> list[int]:
        return layers_read(depth)

    @abc.abstractmethod
    def layer_names(self, config: Any, layer: str, block: str) -> dict[Where, Stored]:
        """Where the parameters of a layer are stored."""

    def names(self, config: Any) -> dict[Where, Stored]:
        stored = super().names(config)
        stored["mask",] = Stored("mask_embedding")
        stored["fused_norm", "scale"] = Stored("hidden_norm.weight")
        if config.d_model != config.embedding_size:
            stored["enter", "kernel"] = Stored("embed_proj.weight", True)
        for index in range(config.layers):
            stored |= self.layer_names(config, f"layers_{index}", f"layers.{index}")
        return stored


@FAMILIES.register("dflash_t5")
class DFlashT5Family(_InBlocks, OnT5, T5Family):
    """Parallel feature drafters of targets with an encoder, and attention to what it wrote."""

    shape = DFlashT5Config
    schema = T5Family.schema.changed(**FIELDS, block_size=size(BLOCK, least=2))

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        return super().given_by(target) | {"num_decoder_layers": min(LAYERS, target.depth)}

    def layer_names(self, config: DFlashT5Config, layer: str, block: str) -> dict[Where, Stored]:
        norms = {"attention": "input", "cross": "cross_attention", "ff": "post_attention"}
        matrices = [("attention", "self_attn", w) for w in "qkvo"]
        matrices += [("cross_attention", "cross_attn", w) for w in "qo"]
        stored: dict[Where, Stored] = {
            (layer, f"{ours}_norm", "scale"): Stored(f"{block}.{theirs}_layernorm.weight")
            for ours, theirs in norms.items()
        }
        for ours, theirs, w in matrices:
            stored[layer, ours, w, "kernel"] = Stored(f"{block}.{theirs}.{w}_proj.weight", True)
        for w in ("gate", "up", "down") if config.gated else ("up", "down"):
            stored[layer, "ff", w, "kernel"] = Stored(f"{block}.mlp.{w}_proj.weight", True)
        return stored


@FAMILIES.register("dflash_llama")
class DFlashLlama(_InBlocks, OnLlama, Llama[DFlashCausalConfig]):
    """Parallel feature drafters of decoder-only targets with rotary positions."""

    shape = DFlashCausalConfig
    schema = Llama.schema.changed(
        **FIELDS, block_size=size(BLOCK, least=2), use_qk_norm=flag(False)
    )

    def own_fields(self, hf: dict[str, Any]) -> dict[str, Any]:
        return super().own_fields(hf) | {"qk_norm": hf.get("use_qk_norm", False)}

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        return words | {"use_qk_norm": config.qk_norm}, generation

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        return super().given_by(target) | {
            "num_hidden_layers": min(LAYERS, target.depth),
            "use_qk_norm": target.config.qk_norm,
        }

    def layer_names(
        self, config: DFlashCausalConfig, layer: str, block: str
    ) -> dict[Where, Stored]:
        return layer_names(config, layer, block)
