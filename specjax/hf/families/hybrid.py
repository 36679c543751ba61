"""Families with recurrent layers, gated delta networks: Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, FEED_FORWARD, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors, nest_modules, split_outputs
from specjax.hf.families.layer_types import FULL, RECURRENT, read_kinds
from specjax.hf.families.mixtures import (
    LOSSES,
    QWEN,
    mix_layers,
    mixtures_to_fields,
    name_experts,
)
from specjax.hf.families.schema import Field, number, raw, size
from specjax.models.causal import CausalConfig
from specjax.models.gated_delta import GatedDelta
from specjax.models.positions import Rope

IMAGE_POSITIONS = ("mrope_section", "mrope_interleaved")
"""Parts of a rotation by time, height and width, which are the same number in texts."""

DELTA: dict[str, Field] = {
    "linear_conv_kernel_dim": size(4, least=2),
    "linear_key_head_dim": size(128),
    "linear_value_head_dim": size(128),
    "linear_num_key_heads": size(16),
    "linear_num_value_heads": size(32),
}
"""Fields of gated delta networks."""

HYBRID: dict[str, Field] = DELTA | {
    "layer_types": raw(),
    "full_attention_interval": size(4),
    "partial_rotary_factor": number(0.25),
}
"""Fields of decoders with such layers."""

SAME: Tensors = {
    "taps": Stored("conv1d.weight"),
    "decay_bias": Stored("dt_bias"),
    "log_speed": Stored("A_log"),
    "norm": "norm",
    "o": "out_proj",
}
"""Modules of a gated delta network with the same names in all families."""

SHARED = "shared_expert"

EXPERTS: dict[str, Field] = {
    "num_experts": size(256),
    "num_experts_per_tok": size(8),
    "moe_intermediate_size": size(512),
    "shared_expert_intermediate_size": size(512),
}
"""Fields of mixtures with a shared expert."""

EVERYWHERE = {"decoder_sparse_step": 1, "mlp_only_layers": None, "norm_topk_prob": True}
"""What Qwen3.5 has no fields for: all layers are mixed, and weights add up to 1."""

SHARES = "attention.q", "attention.gate"
"""Halves of each head in the projection of queries."""


class _Hybrid(Decoder[CausalConfig]):
    """Gated delta networks in some layers, gated attention with partial rotation in the others."""

    constants: ClassVar[dict[str, Any]] = {
        "unit_offset": True,
        "qk_norm": True,
        "gated_attention": True,
    }
    ignored = rf"{Decoder.ignored}|mtp\..*|model\.visual\..*"

    def name_delta(self, delta: GatedDelta) -> Tensors:
        """The modules of a gated delta network."""
        raise NotImplementedError

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        names = "rope_scaling", "rope_parameters"
        return rotary.partial_rope_from_hf(
            {**fields, **{name: _drop_image_positions(fields[name]) for name in names}}, d_head
        )

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        delta = GatedDelta(
            key_heads=fields["linear_num_key_heads"],
            value_heads=fields["linear_num_value_heads"],
            d_key=fields["linear_key_head_dim"],
            d_value=fields["linear_value_head_dim"],
            taps=fields["linear_conv_kernel_dim"],
        )
        kinds = tuple(delta if kind == RECURRENT else None for kind in _list_kinds(fields))
        return super().from_fields(fields, hf) | {"recurrences": kinds}

    def to_fields(self, config: Any) -> dict[str, Any]:
        delta = next((delta for delta in config.recurrences if delta), None)
        fields = super().to_fields(config) | {
            "layer_types": [RECURRENT if delta else FULL for delta in config.layer_recurrences],
            "partial_rotary_factor": rotary.share_to_hf(config.rope.width, config.d_head),
        }
        if delta is None:
            return fields
        return fields | {
            "linear_conv_kernel_dim": delta.taps,
            "linear_key_head_dim": delta.d_key,
            "linear_value_head_dim": delta.d_value,
            "linear_num_key_heads": delta.key_heads,
            "linear_num_value_heads": delta.value_heads,
        }

    def table(self, config: Any) -> Tensors:
        halves: Tensors = {
            name: Stored("self_attn.q_proj", part=part, parts=2, groups=config.num_heads)
            for part, name in enumerate(SHARES)
        }
        layer: Tensors = {**LAYER, **halves, **FEED_FORWARD}
        delta = next((delta for delta in config.recurrences if delta), None)
        if delta is not None:
            modules = {**SAME, **self.name_delta(delta)}
            layer = {**layer, **nest_modules("recurrent", "linear_attn", modules)}
        return whole(layer)


class _MixedHybrid(_Hybrid):
    """Layers with mixtures of experts, one of them shared."""

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        mixtures = mix_layers(EVERYWHERE | fields)
        return super().from_fields(fields, hf) | {"mixtures": mixtures}

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = next(mixture for mixture in config.mixtures if mixture)
        own = mixtures_to_fields(config) | {"shared_expert_intermediate_size": mixture.shared}
        return super().to_fields(config) | {
            name: value for name, value in own.items() if name in self.schema.fields
        }

    def table(self, config: Any) -> Tensors:
        experts = next(mixture.experts for mixture in config.mixtures if mixture)
        layer = nest_modules("layers_{}", "model.layers.{}", name_experts(experts, shared=SHARED))
        return {**super().table(config), **layer}


def _name_fused_inputs(delta: GatedDelta) -> Tensors:
    """The modules of Qwen3.5's gated delta networks."""
    fused = split_outputs("in_proj_qkv", dict(zip("qkv", delta.widths, strict=True)))
    return {**fused, "gate": "in_proj_z", "rate": "in_proj_b", "decay": "in_proj_a"}


@FAMILIES.register("qwen3_5_text")
class Qwen35Text(_Hybrid):
    """The text part of Qwen3.5: gated delta networks in three of four layers, gated attention."""

    schema = Decoder.schema.derive("qwen3_5_text", **BIAS, **HYBRID)
    architecture = "Qwen3_5ForCausalLM"

    def name_delta(self, delta: GatedDelta) -> Tensors:
        return _name_fused_inputs(delta)


@FAMILIES.register("qwen3_5_moe_text")
class Qwen35MoEText(_MixedHybrid):
    """The text part of Qwen3.5 with mixtures of experts in all layers."""

    schema = Decoder.schema.without("intermediate_size").derive(
        "qwen3_5_moe_text", LOSSES, **BIAS, **HYBRID, **EXPERTS
    )
    architecture = "Qwen3_5MoeForCausalLM"
    words: ClassVar[dict[str, str]] = Decoder.words | {"d_ff": "moe_intermediate_size"}

    def name_delta(self, delta: GatedDelta) -> Tensors:
        return _name_fused_inputs(delta)


@FAMILIES.register("qwen3_next")
class Qwen3Next(_MixedHybrid):
    """Qwen3-Next: layers like those of Qwen3.5 with mixtures of experts, one of them shared."""

    schema = Decoder.schema.derive("qwen3_next", LOSSES, **BIAS, **HYBRID, **(QWEN | EXPERTS))
    architecture = "Qwen3NextForCausalLM"

    def name_delta(self, delta: GatedDelta) -> Tensors:
        """Both projections have the channels of one key head after those of another."""
        groups = delta.key_heads
        keys, _, values = (width // groups for width in delta.widths)
        widths = {"q": keys, "k": keys, "v": values, "gate": values}
        return {
            **split_outputs("in_proj_qkvz", widths, groups),
            **split_outputs("in_proj_ba", {"rate": 1, "decay": 1}, groups),
        }


def _drop_image_positions(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    return {name: value for name, value in written.items() if name not in IMAGE_POSITIONS}


def _list_kinds(fields: Mapping[str, Any]) -> list[str]:
    """The kind of each layer; without a list every `full_attention_interval`-th attends.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    layers, kinds = fields["num_hidden_layers"], fields["layer_types"]
    if kinds is None:
        every = fields["full_attention_interval"]
        return [RECURRENT if (layer + 1) % every else FULL for layer in range(layers)]
    return read_kinds(kinds, layers, (RECURRENT, FULL))
