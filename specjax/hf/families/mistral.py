"""Mistral and Ministral: Llama with windows, or with queries that grow with their position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import Decoder
from specjax.hf.families.layer_types import WINDOWS
from specjax.hf.families.schema import format_value, is_number
from specjax.models.causal import CausalConfig
from specjax.models.positions import Temperature

GROWTH = "llama_4_scaling_beta"
"""Inside of the scaling: how queries grow."""


@FAMILIES.register("mistral")
class Mistral(Decoder[CausalConfig]):
    """Llama with a sliding window in every layer."""

    schema = Decoder.schema.derive("mistral", **WINDOWS)
    windows = "all"


@FAMILIES.register("ministral")
class Ministral(Mistral):
    """Ministral 8B: Llama with a window in every layer, or in those that `layer_types` names."""

    schema = Mistral.schema.derive("ministral")
    windows = "mixed"
    needs_window = True


@FAMILIES.register("ministral3")
class Ministral3(Mistral):
    """Ministral 3: Mistral with YaRN, and queries that grow by the logarithm of their position."""

    schema = Mistral.schema.derive("ministral3")
    unsaid: ClassVar[dict[str, Any]] = {
        "rope_type": "yarn", "rope_theta": 1_000_000.0, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, GROWTH: 0.1,
        "original_max_position_embeddings": 16_384,
    }  # fmt: skip
    """The rotation where the configuration has none."""

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        if fields["rope_parameters"] is None:
            fields = {**fields, "rope_parameters": self.unsaid}
        name, written = rotary.find_scaling(fields)
        growth: Any = written.get(GROWTH)
        if not is_number(growth) or growth < 0:
            raise ValueError(
                f"{name} {format_value(written)}: {GROWTH} is {format_value(growth)}; it must be a"
                " number of at least 0"
            )
        plain = {word: value for word, value in written.items() if word != GROWTH}
        attributes = super().from_fields({**fields, name: plain}, hf)
        rope = attributes["rope"]
        if rope.kind != "yarn":
            raise ValueError(f"{name} is {format_value(written)}; its rope_type must be 'yarn'")
        return attributes | {"temperature": Temperature(float(growth), rope.original)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = super().to_fields(config)
        scaling = fields.pop("rope_scaling") | {"rope_theta": fields.pop("rope_theta")}
        return fields | {"rope_parameters": scaling | {GROWTH: config.temperature.scale}}
