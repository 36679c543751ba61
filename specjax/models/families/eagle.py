"""Feature drafters in words like Hugging Face's: what they read of the target, and their layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.models.base import LanguageModel
from specjax.models.eagle import Eagle
from specjax.models.eagle_shapes import EagleCausalConfig, EagleT5Config, OnTarget
from specjax.models.families.family import Stored, Where
from specjax.models.families.llama import Llama
from specjax.models.families.schema import NEEDED, Field, flag, is_int, size
from specjax.models.families.t5 import T5Family
from specjax.models.t5 import T5Config


def _layers() -> Field:
    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and bool(value) and all(map(_is_layer, value))

    return Field(NEEDED, "a list of layers of the target, counted from 1", fits)


def _is_layer(value: Any) -> bool:
    return is_int(value) and value >= 1


FIELDS = {
    "target_hidden_size": size(),
    "target_layers": _layers(),
    "target_cross_layer": size(0, least=0),
    "target_num_heads": size(0, least=0),
    "target_head_dim": size(0, least=0),
    "draft_vocab_size": size(),
}
"""What the shape of a feature drafter says of its target."""

DETAILS = {
    "read_first_token": flag(True),
    "norm_before_residual": flag(False),
    "norm_output": flag(False),
    "fc_norm": flag(False),
}
"""Details of the layer, the last three in words of published drafters (`families/eagle3.py`)."""

FEW = 12
"""Target layers from which on the high states are not the last ones, as in EAGLE-3."""


def layers_read(depth: int) -> list[int]:
    """Low, middle and high layer of a target, as EAGLE-3 reads them of a deep one."""
    high = depth if depth < FEW else depth - 3
    return sorted({min(2, depth), (depth + 1) // 2, high})


class _OnTarget:
    """What both kinds have in common; the other base reads and writes the layer's own shape."""

    model = Eagle
    prefix = ""
    ignored = r"$^"
    shape: type[OnTarget]

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Any:
        layer = super().config_from_hf(hf, generation, dtype)
        own = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}
        if hf["draft_vocab_size"] > layer.vocab_size:
            raise ValueError(
                f"draft_vocab_size is {hf['draft_vocab_size']}; it must be at most vocab_size,"
                f" {layer.vocab_size}"
            )
        return self.shape(
            **{**own, "tied": False},
            target_width=hf["target_hidden_size"],
            features=tuple(hf["target_layers"]),
            draft_vocab=hf["draft_vocab_size"],
            cross=hf.get("target_cross_layer", 0),
            cross_heads=hf.get("target_num_heads", 0),
            cross_width=hf.get("target_head_dim", 0),
        )

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        words |= {
            "architectures": ["SpecjaxEagle"],
            "tie_word_embeddings": False,
            "target_hidden_size": config.target_width,
            "target_layers": list(config.features),
            "target_cross_layer": config.cross,
            "target_num_heads": config.cross_heads,
            "target_head_dim": config.cross_width,
            "draft_vocab_size": config.draft_vocab,
        }
        return words, generation

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        words, _ = super().config_to_hf(target.config)
        return words | {
            "target_hidden_size": target.config.d_model,
            "target_layers": layers_read(target.depth),
            "draft_vocab_size": target.vocab_size,
        }

    def names(self, config: Any) -> Mapping[Where, Stored]:
        stored = {
            ("embedding",): Stored("embed_tokens.weight"),
            ("ids",): Stored("draft_ids", integer=True),
            ("fuse", "kernel"): Stored("fc.weight", True),
            ("final_norm", "scale"): Stored("norm.weight"),
            ("head", "kernel"): Stored("lm_head.weight", True),
        }
        norms = ["embedding_norm", "state_norm", "ff_norm"]
        attentions = {"attention": "qkvo"}
        if config.cross:
            norms.append("cross_norm")
            attentions["cross_attention"] = "qo"
            stored["position_bias", "table"] = Stored("relative_attention_bias.weight")
        for number in range(config.feature_norms):
            stored[f"feature_norms_{number}", "scale"] = Stored(f"feature_norms.{number}.weight")
        for norm in norms:
            stored["layer", norm, "scale"] = Stored(f"layer.{norm}.weight")
        for attention, matrices in attentions.items():
            for w in matrices:
                where = "layer", attention, w, "kernel"
                stored[where] = Stored(f"layer.{attention}.{w}.weight", True)
        for w in ("gate", "up", "down") if config.gated else ("up", "down"):
            stored["layer", "ff", w, "kernel"] = Stored(f"layer.ff.{w}.weight", True)
        return stored


@FAMILIES.register("eagle_t5")
class EagleT5Family(_OnTarget, T5Family):
    """Feature drafters of T5-like targets, with attention to what the target's encoder wrote."""

    shape = EagleT5Config
    schema = T5Family.schema.changed(**FIELDS)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleT5Config:
        config = super().config_from_hf(hf, generation, dtype)
        # It has no encoder of its own.
        return dataclasses.replace(config, num_layers=0, num_decoder_layers=1)

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        return words | {"num_layers": 1, "num_decoder_layers": 1}, generation

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        if not isinstance(target.config, T5Config):
            raise ValueError(
                "model_type is 'eagle_t5'; it must be 'eagle_llama' for a decoder-only target"
            )
        words = super().given_by(target) | {
            "target_cross_layer": target.depth,
            "target_num_heads": target.config.num_heads,
            "target_head_dim": target.config.d_kv,
        }
        return words | {"num_layers": 1, "num_decoder_layers": 1}


@FAMILIES.register("eagle_llama")
class EagleLlama(_OnTarget, Llama):
    """Feature drafters of decoder-only targets with rotary positions."""

    shape = EagleCausalConfig
    schema = Llama.schema.changed(**FIELDS, **DETAILS)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleCausalConfig:
        config = super().config_from_hf(hf, generation, dtype)
        said = {name: hf.get(name, field.default) for name, field in DETAILS.items()}
        return dataclasses.replace(
            config,
            reads_first=said["read_first_token"],
            normed_residual=said["norm_before_residual"],
            normed_states=said["norm_output"],
            feature_norms=config.read if said["fc_norm"] else 0,
        )

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, generation = super().config_to_hf(config)
        words |= {
            "read_first_token": config.reads_first,
            "norm_before_residual": config.normed_residual,
            "norm_output": config.normed_states,
            "fc_norm": config.feature_norms > 0,
        }
        return words, generation

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        if getattr(target.config, "rope", None) is None:
            raise ValueError(
                "model_type is 'eagle_llama', whose positions are rotary; the target, of family"
                f" {target.config.family!r}, has others"
            )
        return super().given_by(target) | {"num_hidden_layers": 1}
