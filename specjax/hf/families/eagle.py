"""Feature drafters of EAGLE-3's kind in words like Hugging Face's: what they read, their layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import on_target
from specjax.hf.families.family import Tensors
from specjax.hf.families.llama import Llama
from specjax.hf.families.on_target import FIELDS, OnLlama, OnT5, OnTargetFamily
from specjax.hf.families.schema import flag
from specjax.hf.families.t5 import T5Family
from specjax.models.base import LanguageModel
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


WORDS = on_target.WORDS | {
    "normed_residual": "norm_before_residual",
    "normed_states": "norm_output",
}

_MODULES = (
    *("embedding_norm", "state_norm", "attention_norm", "ff_norm", "cross_norm"),
    *(f"{kind}.{w}" for kind in ("attention", "cross_attention") for w in "qkvo"),
    *(f"ff.{w}" for w in ("gate", "up", "down")),
)


class _OnStates(OnTargetFamily):
    """Shared parts of both kinds."""

    model = Eagle
    tensors: ClassVar[Tensors] = {
        **on_target.TENSORS,
        "feature_norms_{}": "feature_norms.{}",
        **{f"layer.{name}": f"layer.{name}" for name in _MODULES},
        **{f"layers_{{}}.{name}": f"layers.{{}}.{name}" for name in _MODULES},
    }

    def layers_read(self, depth: int) -> list[int]:
        return layers_read(depth)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        norms = len(fields["target_layers"]) if fields["fc_norm"] else 0
        return super().from_fields(fields, hf) | {"feature_norms": norms}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {"fc_norm": config.feature_norms > 0}


@FAMILIES.register("eagle_t5")
class EagleT5Family(_OnStates, OnT5, T5Family[EagleT5Config]):
    """Feature drafters of targets with an encoder, with attention to its states."""

    shape = EagleT5Config
    schema = T5Family.schema.derive(**FIELDS, **DETAILS)
    words: ClassVar[dict[str, str]] = T5Family.words | WORDS

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {"num_decoder_layers": 1}


@FAMILIES.register("eagle_llama")
class EagleLlama(_OnStates, OnLlama, Llama[EagleCausalConfig]):
    """Feature drafters of decoder-only targets with rotary positions."""

    shape = EagleCausalConfig
    schema = Llama.schema.derive(**FIELDS, **DETAILS, read_first_token=flag(True))
    words: ClassVar[dict[str, str]] = Llama.words | WORDS | {"reads_first": "read_first_token"}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {"num_hidden_layers": 1}
