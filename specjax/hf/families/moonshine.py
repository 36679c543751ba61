"""Moonshine checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.family import Family, Stored, Tensors, nest_modules
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    head_width,
    only,
    rate,
    size,
)
from specjax.hf.families.t5gemma import SCALINGS
from specjax.models.layers import ACTIVATIONS
from specjax.models.moonshine import Moonshine, MoonshineConfig
from specjax.models.with_input import check_has_encoder

HEADS = "decoder_num_attention_heads"
SAME_HEADS = (
    "encoder_num_attention_heads",
    "encoder_num_key_value_heads",
    "decoder_num_key_value_heads",
)
"""Fields that must equal `HEADS`: with others transformers' model builds or runs no layer."""


def _layer(kinds: Mapping[str, str], norms: Mapping[str, str]) -> dict[str, str]:
    """A layer, whose kinds of attention and norms are ours -> theirs."""
    layer = {f"{ours}_norm": theirs for ours, theirs in norms.items()}
    for ours, theirs in kinds.items():
        layer |= {f"{ours}_attention.{w}": f"{theirs}.{w}_proj" for w in "qkvo"}
    return layer | {"ff.up": "mlp.fc1", "ff.down": "mlp.fc2"}


ENCODER_LAYER = _layer(
    {"self": "self_attn"}, {"self": "input_layernorm", "ff": "post_attention_layernorm"}
)
DECODER_LAYER = _layer(
    {"self": "self_attn", "cross": "encoder_attn"},
    {"self": "input_layernorm", "cross": "post_attention_layernorm", "ff": "final_layernorm"},
)
GATED: Tensors = {
    name: Stored("mlp.fc1", part=part, parts=2) for part, name in enumerate(("ff.up", "ff.gate"))
}


def nest_layers(side: str, layer: Tensors) -> Tensors:
    """The layers of an encoder or a decoder."""
    return nest_modules(f"{side}_{{}}", f"model.{side}.layers.{{}}", layer)


def _convolution(number: int, *parameters: str) -> Tensors:
    names = {"kernel": "weight", "bias": "bias"}
    return {
        f"encoder_entrance.conv{number}.{name}": Stored(
            f"model.encoder.conv{number}.{names[name]}", transposed=name == "kernel"
        )
        for name in parameters
    }


@FAMILIES.register("moonshine")
class MoonshineFamily(Family[MoonshineConfig]):
    """Moonshine: speech of any length to English text, from samples."""

    model, shape = Moonshine, MoonshineConfig
    architecture = "MoonshineForConditionalGeneration"
    schema = Schema(
        SHARED
        | ALL_FULL
        | rotary.FIELDS
        | {
            "vocab_size": size(),
            "hidden_size": size(),
            "intermediate_size": size(),
            "encoder_num_hidden_layers": size(most=MOST_LAYERS),
            "decoder_num_hidden_layers": size(most=MOST_LAYERS),
            HEADS: size(),
            **{name: size(None) for name in SAME_HEADS},
            "head_dim": size(None),
            "encoder_hidden_act": choice("gelu", ACTIVATIONS),
            "decoder_hidden_act": choice("silu", ACTIVATIONS),
            "max_position_embeddings": size(512),
            "attention_bias": flag(False),
            "tie_word_embeddings": flag(True),
            "is_encoder_decoder": only(True),
            rotary.SHARE: rate(0.9),
        },
        # Heads are padded by zeros, for kernels that want other widths.
        COMMON | {"attention_dropout", "initializer_range", "pad_head_dim_to_multiple_of"},
        "moonshine",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "encoder_ff": "intermediate_size",
        "num_heads": HEADS,
        "encoder_heads": HEADS,
        "num_layers": "encoder_num_hidden_layers",
        "num_decoder_layers": "decoder_num_hidden_layers",
        "activation": "decoder_hidden_act",
        "encoder_activation": "encoder_hidden_act",
        "key_bias": "attention_bias",
        "query_value_bias": "attention_bias",
        "context": "max_position_embeddings",
        "tied": "tie_word_embeddings",
    }
    constants: ClassVar[dict[str, Any]] = {
        "max_positions": None,
        "norm_bias": False,
        "output_bias": False,
    }
    tensors: ClassVar[Tensors] = {
        "embedding": "model.decoder.embed_tokens.weight",
        "head": "proj_out",
        **_convolution(1, "kernel"),
        **_convolution(2, "kernel", "bias"),
        **_convolution(3, "kernel", "bias"),
        "encoder_entrance.norm.scale": "model.encoder.groupnorm.weight",
        "encoder_entrance.norm.bias": "model.encoder.groupnorm.bias",
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.norm",
        **nest_layers("encoder", ENCODER_LAYER),
        **nest_layers("decoder", DECODER_LAYER | GATED),
    }
    prefix = "model."
    output = "proj_out.weight"
    ignored = r".*rotary_emb\.inv_freq"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        for name in SAME_HEADS:
            if fields[name] not in (None, fields[HEADS]):
                raise ValueError(
                    f"{name} is {fields[name]}; it must be {fields[HEADS]}, {HEADS}: transformers"
                    " has no others"
                )
        d_head = fields["head_dim"] or head_width(fields, heads=HEADS)
        rope = rotary.partial_rope_from_hf(fields, d_head)
        if rope.kind not in SCALINGS:
            raise ValueError(f"rope_type is {rope.kind!r}; it must be one of {', '.join(SCALINGS)}")
        return {"d_head": d_head, "rope": dataclasses.replace(rope, interleaved=True)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        rope = config.rope
        return {
            **dict.fromkeys(SAME_HEADS, config.num_heads),
            "head_dim": config.d_head,
            "rope_theta": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
            rotary.SHARE: rotary.share_to_hf(rope.width, config.d_head),
        }
