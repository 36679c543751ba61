"""Llama 4, its text part: chunks with rotation, layers without positions, routed inputs (2025)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import BIAS, FEED_FORWARD, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.layer_types import FULL, read_kinds
from specjax.hf.families.llama import list_rotations
from specjax.hf.families.mixtures import LOSSES
from specjax.hf.families.schema import (
    Field,
    flag,
    format_value,
    is_int,
    is_number,
    number,
    raw,
    size,
)
from specjax.hf.families.text_parts import TextPart, make_schema
from specjax.models.causal import CausalConfig
from specjax.models.experts import Mixture
from specjax.models.positions import Rope, Temperature

CHUNKED = "chunked_attention"
BLOCK = "feed_forward"
"""Of a layer's network or mixture."""

NETWORK: Tensors = {ours: theirs.replace("mlp", BLOCK) for ours, theirs in FEED_FORWARD.items()}
"""Modules of a layer without experts."""

MIXTURE: Tensors = {
    "ff.router.logits": f"{BLOCK}.router",
    "ff.gates": Stored(f"{BLOCK}.experts.gate_up_proj", parts=2),
    "ff.ups": Stored(f"{BLOCK}.experts.gate_up_proj", part=1, parts=2),
    "ff.downs": Stored(f"{BLOCK}.experts.down_proj"),
    **{
        ours.replace("ff", "ff.shared.expert"): theirs.replace("mlp", f"{BLOCK}.shared_expert")
        for ours, theirs in FEED_FORWARD.items()
    },
}
"""Modules of a mixture: one tensor has the gates and ways up of all experts, inputs first."""

SCALE = Field(0.1, "a number of at least 0", lambda value: is_number(value) and value >= 0)


@FAMILIES.register("llama4_text")
class Llama4(Decoder[CausalConfig]):
    """Llama 4: attention in chunks, every fourth layer without positions, mixtures of experts."""

    schema = Decoder.schema.derive(
        "llama4_text",
        (*LOSSES, "router_jitter_noise"),
        **BIAS,
        rope_theta=number(500_000.0),
        intermediate_size_mlp=size(16_384),
        num_local_experts=size(16),
        num_experts_per_tok=size(1),
        moe_layers=raw(),
        interleave_moe_layer_step=size(1),
        use_qk_norm=flag(True),
        no_rope_layers=raw(),
        no_rope_layer_interval=size(4),
        layer_types=raw(),
        attention_chunk_size=size(None),
        attn_temperature_tuning=flag(True),
        floor_scale=size(8192),
        attn_scale=SCALE,
    )
    architecture = "Llama4ForCausalLM"
    words: ClassVar[dict[str, str]] = Decoder.words | {
        "d_ff": "intermediate_size_mlp",
        "rotated_norm": "use_qk_norm",
    }
    constants: ClassVar[dict[str, Any]] = {"chunked_windows": True}
    tensors = whole({**LAYER, **NETWORK, **MIXTURE})

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        return dataclasses.replace(super().rope(fields, d_head), interleaved=True)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        listed = fields["no_rope_layers"] or None  # an empty list is null, as in transformers
        rotated = list_rotations({**fields, "no_rope_layers": listed})
        attributes = super().from_fields(fields, hf)
        if not all(rotated):
            attributes["ropes"] = tuple(attributes["rope"] if one else None for one in rotated)
        if fields["attn_temperature_tuning"]:
            growth = float(fields["attn_scale"]), fields["floor_scale"]
            attributes["temperature"] = Temperature(*growth, first=1, unrotated=True)
        chunks, mixtures = _list_chunks(fields, rotated), _mix_layers(fields)
        return attributes | {"windows": chunks, "mixtures": mixtures}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, mixed = super().to_fields(config), config.layer_mixtures
        some = next(filter(None, mixed), None)
        if some:
            fields |= {"num_local_experts": some.experts, "num_experts_per_tok": some.chosen}
        if config.temperature:
            tuned = config.temperature
            fields |= {"attn_scale": tuned.scale, "floor_scale": tuned.span}
        return fields | {
            "intermediate_size": some.d_ff if some else config.d_ff,
            "moe_layers": [layer for layer, mixture in enumerate(mixed) if mixture],
            "no_rope_layers": [int(rope is not None) for rope in config.layer_ropes],
            "layer_types": [CHUNKED if window else FULL for window in config.layer_windows],
            "attention_chunk_size": max(config.layer_windows) or None,
            "attn_temperature_tuning": config.temperature is not None,
        }


def _list_chunks(fields: Mapping[str, Any], rotated: list[bool]) -> tuple[int, ...]:
    """The size of each layer's chunks, 0 for none; empty if none has them.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    chunk, kinds = fields["attention_chunk_size"], fields["layer_types"]
    usual = [CHUNKED if one and chunk else FULL for one in rotated]
    kinds = read_kinds(usual if kinds is None else kinds, len(rotated), (FULL, CHUNKED))
    if CHUNKED not in kinds:
        return ()
    if chunk is None:
        raise ValueError(
            f"layer_types is {format_value(kinds)}; layers with chunks need attention_chunk_size"
        )
    return tuple(chunk if kind == CHUNKED else 0 for kind in kinds)


def _mix_layers(fields: Mapping[str, Any]) -> tuple[Mixture | None, ...]:
    """The mixtures of the layers that `moe_layers` names, or of each n-th; empty if none has one.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    listed, step = fields["moe_layers"], fields["interleave_moe_layer_step"]
    layers = range(fields["num_hidden_layers"])
    listed = layers[step - 1 :: step] if listed is None else listed
    if not (isinstance(listed, list | range) and all(map(is_int, listed))):
        raise ValueError(
            f"moe_layers is {format_value(listed)}; it must be a list of layers, or null"
        )
    if not {*layers} & {*listed}:
        return ()
    mixture = Mixture(
        experts=fields["num_local_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["intermediate_size"],
        normalized=False,
        shared=fields["intermediate_size"],
        scoring="sigmoid",
        weighted_inputs=True,
    )
    return tuple(mixture if layer in listed else None for layer in layers)


IMAGES = [f"{name}_token_{kind}" for name in ("boi", "eoi", "image") for kind in ("id", "index")]
"""Fields of the whole about images."""


@FAMILIES.register("llama4")
class Llama4TextPart(TextPart):
    """The text part of Llama 4."""

    schema = make_schema("llama4", IMAGES)
    families: ClassVar[dict[str, str]] = {"llama4_text": "llama4_text"}
    ignored = rf"{Decoder.ignored}|(model\.)?(vision_model|multi_modal_projector)\..*"

    def is_tied(self, hf: Mapping[str, Any], text: Mapping[str, Any]) -> Any:
        """As the text part says: its own class ties them."""
        return text.get("tie_word_embeddings", False)
