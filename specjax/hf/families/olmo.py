"""OLMo 1 to 3 and EXAONE 4: no parameters in norms, or norms after the sublayers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import (
    BIAS,
    SANDWICH,
    Decoder,
    TwoRotations,
    find_local_base,
    rotate_windows_only,
    whole,
)
from specjax.hf.families.layer_types import KINDS, WINDOWS, every
from specjax.hf.families.schema import ALL_FULL, format_value, is_int, number, raw
from specjax.models.causal import CausalConfig

AFTER: dict[str, Any] = {"pre_norm": False, "post_norm": True}
"""Attributes of shapes whose norms are after the sublayers."""


@FAMILIES.register("olmo")
class Olmo1(Decoder[CausalConfig]):
    """OLMo 1: Llama with layer norms that have no parameters (Groeneveld et al. 2024)."""

    schema = Decoder.schema.without("rms_norm_eps").derive(
        "olmo", **BIAS, **ALL_FULL, clip_qkv=number(None)
    )
    words: ClassVar[dict[str, str]] = {
        attribute: field for attribute, field in Decoder.words.items() if attribute != "eps"
    }
    constants: ClassVar[dict[str, Any]] = {
        "rms_norm": False,
        "norm_scale": False,
        "norm_bias": False,
        "eps": 1e-5,  # without a field
    }

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"qkv_clip": fields["clip_qkv"] or 0.0}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {"clip_qkv": config.qkv_clip or None}


@FAMILIES.register("olmo2")
class Olmo2(Decoder[CausalConfig]):
    """Llama with norms after the sublayers instead of before, and norms of queries and keys.

    OLMo 2 (2025), section 3.2; a query's or key's norm is over all heads together.
    """

    schema = Decoder.schema.derive("olmo2", **BIAS, **ALL_FULL)
    constants: ClassVar[dict[str, Any]] = AFTER | {"wide_qk_norm": True}
    tensors = whole(SANDWICH)


@FAMILIES.register("olmo3")
class Olmo3(TwoRotations, Olmo2):
    """OLMo 2 with windows in three of four layers, which rotate without scaling (2025)."""

    schema = Olmo2.schema.derive("olmo3", **WINDOWS, rope_theta=number(500_000.0))

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(4, fields)

    def local_base(self, fields: Mapping[str, Any]) -> float:
        return 500_000.0  # `rope_theta` is that of the other layers

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, base = super().to_fields(config), find_local_base(config)
        scaled = (fields.pop("rope_scaling") or {}) | {"rope_theta": fields.pop("rope_theta")}
        plain = {"rope_theta": base} if base else {}
        return fields | {"rope_parameters": dict(zip(KINDS, (scaled, plain), strict=True))}


@FAMILIES.register("exaone4")
class Exaone4(Decoder[CausalConfig]):
    """OLMo 2 with norms of single heads; where some layers slide, the others do not rotate.

    LG AI Research, "EXAONE 4.0" (2025), section 2.
    """

    schema = Decoder.schema.derive("exaone4", **WINDOWS, sliding_window_pattern=raw(4))
    constants: ClassVar[dict[str, Any]] = AFTER | {"qk_norm": True}
    tensors = whole(SANDWICH)
    windows = "mixed"

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        count = fields["sliding_window_pattern"]
        if window is None or fields["layer_types"] is not None:
            return [False] * fields["num_hidden_layers"]
        if not is_int(count) or count < 1:
            raise ValueError(
                f"sliding_window_pattern is {format_value(count)}; it must be a positive integer"
                " where layer_types is null"
            )
        return every(count, fields)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        if fields["sliding_window"] is None:
            return attributes
        ropes = rotate_windows_only(attributes, fields["num_hidden_layers"])
        return attributes | {"ropes": ropes}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = super().to_fields(config)
        if not all(config.layer_ropes):
            fields["sliding_window"] = fields["sliding_window"] or config.max_positions
        return fields
