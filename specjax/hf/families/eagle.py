"""Feature drafters of one layer in words like Hugging Face's: what they read, and their layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families.family import Stored, linear
from specjax.hf.families.llama import Llama
from specjax.hf.families.on_target import FIELDS, OnLlama, OnT5, OnTargetFamily
from specjax.hf.families.schema import flag
from specjax.hf.families.t5 import T5Family
from specjax.models.base import LanguageModel, Where
from specjax.models.eagle import Eagle, EagleCausalConfig, EagleT5Config

DETAILS = {
    "norm_before_residual": flag(False),
    "norm_output": flag(False),
    "fc_norm": flag(False),
}
"""Details of the layer, in words of published drafters (`eagle3.py`)."""

FEW = 12
"""Target layers from which on the high states are not the last ones, as in EAGLE-3."""


def layers_read(depth: int) -> list[int]:
    """Low, middle and high layer of a target, as EAGLE-3 reads them of a deep one."""
    high = depth if depth < FEW else depth - 3
    return sorted({min(2, depth), (depth + 1) // 2, high})


class _OneLayer(OnTargetFamily):
    """What both kinds have in common."""

    model = Eagle

    def layers_read(self, depth: int) -> list[int]:
        return layers_read(depth)

    def own_fields(self, hf: dict[str, Any]) -> dict[str, Any]:
        said = {name: hf.get(name, field.default) for name, field in DETAILS.items()}
        return {
            "normed_residual": said["norm_before_residual"],
            "normed_states": said["norm_output"],
            "feature_norms": len(hf["target_layers"]) if said["fc_norm"] else 0,
        }

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        words |= {
            "norm_before_residual": config.normed_residual,
            "norm_output": config.normed_states,
            "fc_norm": config.feature_norms > 0,
        }
        return words, generation

    def names(self, config: Any) -> dict[Where, Stored]:
        stored = super().names(config)
        norms = ["embedding_norm", "state_norm", "ff_norm"]
        attentions = {"attention": "qkvo"}
        if config.cross:
            norms.append("cross_norm")
            attentions["cross_attention"] = "qo"
        for number in range(config.feature_norms):
            stored[f"feature_norms_{number}", "scale"] = Stored(f"feature_norms.{number}.weight")
        for norm in norms:
            stored["layer", norm, "scale"] = Stored(f"layer.{norm}.weight")
        for attention, matrices in attentions.items():
            for w in matrices:
                biased = _biased(config, w)
                stored |= linear(("layer", attention, w), f"layer.{attention}.{w}", biased)
        for w in ("gate", "up", "down") if config.gated else ("up", "down"):
            stored |= linear(("layer", "ff", w), f"layer.ff.{w}", config.ff_bias)
        return stored


def _biased(config: Any, matrix: str) -> bool:
    """Whether a matrix of an attention has a bias: T5's have none."""
    if config.cross:
        return False
    return config.out_bias if matrix == "o" else config.qkv_bias


@FAMILIES.register("eagle_t5")
class EagleT5Family(_OneLayer, OnT5, T5Family):
    """Feature drafters of targets with an encoder, and attention to what that wrote."""

    shape = EagleT5Config
    schema = T5Family.schema.changed(**FIELDS, **DETAILS)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleT5Config:
        config = super().config_from_hf(hf, generation, dtype)
        return dataclasses.replace(config, num_decoder_layers=1)

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        return super().given_by(target) | {"num_decoder_layers": 1}


@FAMILIES.register("eagle_llama")
class EagleLlama(_OneLayer, OnLlama, Llama[EagleCausalConfig]):
    """Feature drafters of decoder-only targets with rotary positions."""

    shape = EagleCausalConfig
    schema = Llama.schema.changed(**FIELDS, **DETAILS, read_first_token=flag(True))

    def own_fields(self, hf: dict[str, Any]) -> dict[str, Any]:
        return super().own_fields(hf) | {"reads_first": hf.get("read_first_token", True)}

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        return words | {"read_first_token": config.reads_first}, generation

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        return super().given_by(target) | {"num_hidden_layers": 1}
