"""Bamba: Mamba-2 in most layers, Llama's attention with partial rotation in the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, LAYER, Decoder, whole
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.mamba import CHUNK, MAMBA, describe_mamba, name_mamba, read_mamba
from specjax.hf.families.schema import ALL_FULL, Field, flag, format_value, is_int, raw
from specjax.models.causal import CausalConfig
from specjax.models.positions import Rope

HALF = 0.5
"""The share of each head that is rotated, where the rotation has no other."""


@FAMILIES.register("bamba")
class Bamba(Decoder[CausalConfig]):
    """Bamba: Mamba-2 layers, and Llama's with half of each head rotated."""

    schema = Decoder.schema.derive(
        "bamba",
        (CHUNK, "num_logits_to_keep", "z_loss_coefficient"),
        **BIAS,
        **ALL_FULL,
        **MAMBA,
        mlp_bias=flag(False),
        attn_layer_indices=raw(),
        partial_rotary_factor=Field(
            HALF, "0.5: another share is inside of rope_parameters", lambda value: value == HALF
        ),
    )

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        return rotary.partial_rope_from_hf(fields, d_head)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attending, mamba = fields["attn_layer_indices"] or [], read_mamba(fields)
        if not (isinstance(attending, list) and all(is_int(layer) for layer in attending)):
            raise ValueError(
                f"attn_layer_indices is {format_value(attending)}; it must be a list of layers, or"
                " null"
            )
        layers = range(fields["num_hidden_layers"])
        kinds = tuple(None if layer in attending else mamba for layer in layers)
        return super().from_fields(fields, hf) | {"recurrences": kinds}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, rope = super().to_fields(config), rotary.get_rope(config)
        scaling = fields["rope_scaling"] or {"rope_type": "default"}
        share = rotary.share_to_hf(rope.width, config.d_head)
        attending = [layer for layer, kind in enumerate(config.recurrences) if kind is None]
        return (
            fields
            | describe_mamba(config)
            | {
                "attn_layer_indices": attending,
                "rope_scaling": scaling | {rotary.SHARE: share, "rope_theta": rope.theta},
            }
        )

    def table(self, config: Any) -> Tensors:
        network = nest_modules(
            "ff", "feed_forward", {w: f"{w}_proj" for w in ("gate", "up", "down")}
        )
        mamba = nest_modules("recurrent", "mamba", name_mamba(config))
        layer = {**LAYER, **network, "ff_norm": "pre_ff_layernorm", **mamba}
        return whole(layer, norm="final_layernorm")
