"""Llama and its relatives: tables of what is different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, FUSED_FEED_FORWARD, LAYER, Decoder
from specjax.hf.families.family import Shape, Stored, Tensors, nest_modules
from specjax.hf.families.layer_types import SWITCHED, WINDOWS
from specjax.hf.families.schema import ALL_FULL, flag, format_value, head_width, number, raw, size
from specjax.models.causal import CausalConfig
from specjax.models.positions import Rope


@FAMILIES.register("llama")
class Llama(Decoder[Shape]):
    """Llama 1-3, Vicuna, TinyLlama: rotary positions, grouped-query attention."""

    schema = Decoder.schema.derive(
        "llama", ("pretraining_tp",), **BIAS, mlp_bias=flag(False), **ALL_FULL
    )

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        head_width(fields)  # it must divide, even where `head_dim` is another
        return super().from_fields(fields, hf)


class _Qwen(Decoder[CausalConfig]):
    """Layers from `max_window_layers` on slide, where the configuration turns that on."""

    schema = Decoder.schema.derive(**SWITCHED, max_window_layers=size(28, least=0))
    windows = "mixed"

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        first = fields["max_window_layers"]
        layers = range(fields["num_hidden_layers"])
        return [window is not None and layer >= first for layer in layers]


@FAMILIES.register("qwen2")
class Qwen2(_Qwen):
    """Llama with biases of queries, keys and values."""

    schema = _Qwen.schema.derive("qwen2")
    constants: ClassVar[dict[str, Any]] = {"qkv_bias": True}


@FAMILIES.register("mimo")
class MiMo(Qwen2):
    """Qwen2 with a head for multi-token prediction in its checkpoint (`families.mtp`)."""

    schema = Qwen2.schema.derive(num_nextn_predict_layers=size(0, least=0))
    architecture = "MiMoForCausalLM"


@FAMILIES.register("qwen3")
class Qwen3(_Qwen):
    """Llama with norms of queries and keys."""

    schema = _Qwen.schema.derive("qwen3", **BIAS)
    constants: ClassVar[dict[str, Any]] = {"qk_norm": True}


@FAMILIES.register("smollm3")
class SmolLM3(Decoder[CausalConfig]):
    """Llama without rotation in some layers (Yang et al. 2025, "RoPE to NoPE and back again")."""

    schema = Decoder.schema.derive(
        "smollm3",
        **BIAS,
        **SWITCHED,
        mlp_bias=flag(False),
        rope_theta=number(2_000_000.0),
        no_rope_layers=raw(),
        no_rope_layer_interval=size(4),
    )
    architecture = "SmolLM3ForCausalLM"
    windows = "mixed"

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return [window is not None and not rotates for rotates in list_rotations(fields)]

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes, rotated = super().from_fields(fields, hf), list_rotations(fields)
        if not all(rotated):
            attributes["ropes"] = tuple(attributes["rope"] if one else None for one in rotated)
        return attributes

    def to_fields(self, config: Any) -> dict[str, Any]:
        rotated = [int(rope is not None) for rope in config.layer_ropes]
        return super().to_fields(config) | {"no_rope_layers": rotated}


@FAMILIES.register("granite")
class Granite(Decoder[CausalConfig]):
    """Granite 3 to 4, dense: Llama with factors of embeddings, attention, sublayers and logits."""

    schema = Decoder.schema.derive(
        "granite",
        **BIAS,
        **ALL_FULL,
        mlp_bias=flag(False),
        embedding_multiplier=number(1.0),
        attention_multiplier=number(1.0),
        residual_multiplier=number(1.0),
        logits_scaling=number(1.0),
    )
    words: ClassVar[dict[str, str]] = Decoder.words | {
        "embedding_scale": "embedding_multiplier",
        "query_scale": "attention_multiplier",
        "residual_scale": "residual_multiplier",
    }

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"logit_scale": 1 / fields["logits_scaling"]}

    def to_fields(self, config: Any) -> dict[str, Any]:
        # Of at most 15 digits, it is the number that it was.
        return super().to_fields(config) | {
            "logits_scaling": float(f"{1 / config.logit_scale:.15g}")
        }


@FAMILIES.register("cwm")
class Cwm(Decoder[CausalConfig]):
    """Code World Model: Llama with windows in three of four layers (Meta FAIR 2025)."""

    schema = Decoder.schema.derive(
        "cwm", ("pretraining_tp",), **WINDOWS, mlp_bias=flag(False), rope_theta=number(1_000_000.0)
    )
    windows = "mixed"
    needs_window = True
    unsaid: ClassVar[dict[str, Any]] = {
        "rope_type": "llama3", "rope_theta": 1_000_000.0, "factor": 16.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    """The rotation where the configuration has none."""

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return [layer % 4 > 0 for layer in range(fields["num_hidden_layers"])]

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        rope_parameters = (
            self.unsaid if fields["rope_parameters"] is None else fields["rope_parameters"]
        )
        return super().rope({**fields, "rope_parameters": rope_parameters}, d_head)

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = super().to_fields(config)  # transformers takes null for a rotation of its own
        return fields | {"rope_scaling": fields["rope_scaling"] or {"rope_type": "default"}}


def list_rotations(fields: Mapping[str, Any]) -> list[bool]:
    """Whether each layer rotates; despite its name `no_rope_layers` has a 1 for rotation.

    Without that list every `no_rope_layer_interval`-th layer does not rotate.
    """
    layers, listed = fields["num_hidden_layers"], fields["no_rope_layers"]
    if listed is None:
        every = fields["no_rope_layer_interval"]
        return [(layer + 1) % every > 0 for layer in range(layers)]
    flags = isinstance(listed, list) and all(flag in (0, 1) for flag in listed)
    if not flags or len(listed) < layers:
        raise ValueError(
            f"no_rope_layers is {format_value(listed)}; it must have a 0 or 1 for each of the "
            f"{layers}"
            " layers"
        )
    return [bool(flag) for flag in listed[:layers]]


@FAMILIES.register("phi3")
class Phi3(Decoder[CausalConfig]):
    """Phi-3, Phi-4: Llama with fused projections, LongRoPE and perhaps partial rotation."""

    schema = Decoder.schema.derive(
        "phi3",
        ("embd_pdrop", "resid_pdrop"),
        **WINDOWS,
        original_max_position_embeddings=size(4096),
        partial_rotary_factor=number(1.0),
    )
    windows = "all"

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        scalings = ("rope_scaling", "rope_parameters")
        today = {name: rotary.rename_long(name, fields[name]) for name in scalings}
        return rotary.partial_rope_from_hf({**fields, **today}, d_head)

    def to_fields(self, config: Any) -> dict[str, Any]:
        rope = rotary.get_rope(config)
        return super().to_fields(config) | {
            "original_max_position_embeddings": rope.original or config.max_positions,
            "partial_rotary_factor": rotary.share_to_hf(rope.width, config.d_head),
        }

    def table(self, config: Any) -> Tensors:
        """Queries are as wide as several keys."""
        spans = config.num_heads // config.num_kv_heads
        qkv = "self_attn.qkv_proj"
        fused_tensors: Tensors = {
            **LAYER,
            "attention.q": Stored(qkv, parts=spans + 2, spans=spans),
            "attention.k": Stored(qkv, part=spans, parts=spans + 2),
            "attention.v": Stored(qkv, part=spans + 1, parts=spans + 2),
            **FUSED_FEED_FORWARD,
        }
        return {**self.tensors, **nest_modules("layers_{}", "model.layers.{}", fused_tensors)}
