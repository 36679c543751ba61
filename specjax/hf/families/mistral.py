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
        plain, growth = split_growth(fields, self.unsaid)
        attributes = super().from_fields(plain, hf)
        return attributes | {"temperature": Temperature(growth, attributes["rope"].original)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return join_growth(super().to_fields(config), config)


def split_growth(
    fields: Mapping[str, Any], unsaid: Mapping[str, Any]
) -> tuple[dict[str, Any], float]:
    """The fields with YaRN alone, and how queries grow; `unsaid` is the scaling where none is.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    fields = {**fields}
    if fields["rope_parameters"] is None:
        fields["rope_parameters"] = unsaid
    name, written = rotary.find_scaling(fields)
    growth: Any = written.get(GROWTH)
    if not is_number(growth) or growth < 0:
        raise ValueError(
            f"{name} {format_value(written)}: {GROWTH} is {format_value(growth)}; it must be a"
            " number of at least 0"
        )
    if written.get("rope_type", written.get("type")) != "yarn":
        raise ValueError(f"{name} is {format_value(written)}; its rope_type must be 'yarn'")
    plain = {word: value for word, value in written.items() if word != GROWTH}
    return {**fields, name: plain}, float(growth)


def join_growth(fields: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The fields of an export with the scaling that `split_growth` reads."""
    joined = dict(fields)
    scaling = joined.pop("rope_scaling") | {"rope_theta": joined.pop("rope_theta")}
    return joined | {"rope_parameters": scaling | {GROWTH: config.temperature.scale}}
