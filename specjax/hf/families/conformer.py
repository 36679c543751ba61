"""Fast Conformers in Hugging Face's words: fields of `parakeet_encoder`, and tensor names."""

from __future__ import annotations

import math
from typing import Any

from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    SHARED,
    Field,
    Schema,
    choice,
    filled_heads,
    flag,
    format_value,
    is_int,
    read,
    size,
)
from specjax.models.conformer import ConformerConfig
from specjax.models.layers import ACTIVATIONS

HEADS, KEY_HEADS = "num_attention_heads", "num_key_value_heads"
LAYERS, FACTOR = "num_hidden_layers", "subsampling_factor"


def _is_odd(value: Any) -> bool:
    return is_int(value) and value > 0 and value % 2 == 1


STACK = (
    SHARED
    | ALL_FULL
    | {
        "hidden_size": size(1024, least=4),
        "intermediate_size": size(4096),
        LAYERS: size(24, most=MOST_LAYERS),
        HEADS: size(8),
        KEY_HEADS: size(None),
        "head_dim": size(None),
        "attention_bias": flag(True),
    }
)
"""Fields that a decoder after it has too."""

ENCODER = Schema(
    STACK
    | {
        "hidden_act": choice("silu", ACTIVATIONS),
        "max_position_embeddings": size(5000),
        "convolution_bias": flag(True),
        "conv_kernel_size": Field(9, "an odd integer", _is_odd),
        FACTOR: size(8, least=2),
        "subsampling_conv_channels": size(256),
        "subsampling_conv_kernel_size": size(3),
        "subsampling_conv_stride": size(2),
        "num_mel_bins": size(80),
        "scale_input": flag(True),
    },
    # Models with such an encoder are not trained.
    COMMON
    | {
        "activation_dropout",
        "attention_dropout",
        "dropout",
        "dropout_positions",
        "initializer_range",
        "layerdrop",
    },
    "parakeet_encoder",
)

WORDS = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_heads": HEADS,
    "mels": "num_mel_bins",
    "max_states": "max_position_embeddings",
    "channels": "subsampling_conv_channels",
    "kernel": "subsampling_conv_kernel_size",
    "stride": "subsampling_conv_stride",
    "taps": "conv_kernel_size",
    "activation": "hidden_act",
    "bias": "attention_bias",
    "convolution_bias": "convolution_bias",
    "scaled": "scale_input",
}
"""Attributes of the shape, and the fields that hold them as they are."""


def read_stack(schema: Schema, written: dict[str, Any]) -> dict[str, Any]:
    """The checked fields of an encoder or a decoder, which has no grouped heads.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    kind = written.get("model_type", schema.source)
    if kind != schema.source:
        raise ValueError(
            f"model_type is {format_value(kind)}; it must be {schema.source!r}, the only kind that"
            " specjax knows here"
        )
    fields = read(schema, written, GENERATION)
    if fields["hidden_size"] % 2:
        raise ValueError(
            f"hidden_size is {fields['hidden_size']}; it must be even, for the sines and cosines"
            " of positions"
        )
    if fields[KEY_HEADS] not in (None, fields[HEADS]):
        raise ValueError(f"{KEY_HEADS} is {fields[KEY_HEADS]}; it must be {fields[HEADS]}, {HEADS}")
    return fields


def read_conformer(written: dict[str, Any]) -> tuple[ConformerConfig, int]:
    """The shape of an encoder, and its number of layers.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    fields = read_stack(ENCODER, written)
    filled_heads(fields)
    own = {name: fields[field] for name, field in WORDS.items()}
    shape = ConformerConfig(convolutions=int(math.log2(fields[FACTOR])), **own)
    # transformers' projection reads so many, whatever the convolutions leave.
    left = shape.mels // shape.stride**shape.convolutions
    if shape.frequencies != left or not left:
        raise ValueError(
            f"num_mel_bins is {shape.mels}; the convolutions must leave {max(left, 1)} of them, and"
            f" leave {shape.frequencies}"
        )
    return shape, fields[LAYERS]


def conformer_to_fields(shape: ConformerConfig, layers: int) -> dict[str, Any]:
    """The fields of an encoder of so many layers."""
    own = {LAYERS: layers, KEY_HEADS: shape.num_heads, FACTOR: 2**shape.convolutions}
    fields = {field: getattr(shape, name) for name, field in WORDS.items()}
    return {"model_type": ENCODER.source} | fields | own


def _convolution(ours: str, theirs: str) -> Tensors:
    """The kernel, whose axes are turned around, and the bias of a convolution."""
    return {
        f"{ours}.kernel": Stored(f"{theirs}.weight", transposed=True),
        f"{ours}.bias": Stored(f"{theirs}.bias"),
    }


def _make_layer() -> Tensors:
    """Places of the parameters of a layer."""
    layer: dict[str, str | Stored] = {
        "first_norm": "norm_feed_forward1",
        "self_norm": "norm_self_att",
        "convolution_norm": "norm_conv",
        "last_norm": "norm_feed_forward2",
        "norm": "norm_out",
        "self_attention.distance": "self_attn.relative_k_proj",
        "self_attention.content_bias": "self_attn.bias_u",
        "self_attention.distance_bias": "self_attn.bias_v",
        "convolution.norm.mean": "conv.norm.running_mean",
        "convolution.norm.variance": "conv.norm.running_var",
        "convolution.norm.scale": "conv.norm.weight",
        "convolution.norm.bias": "conv.norm.bias",
        **_convolution("convolution.expansion", "conv.pointwise_conv1"),
        **_convolution("convolution.depthwise", "conv.depthwise_conv"),
        **_convolution("convolution.projection", "conv.pointwise_conv2"),
    }
    layer |= {f"self_attention.{w}": f"self_attn.{w}_proj" for w in "qkvo"}
    for ours, theirs in (("first_ff", "feed_forward1"), ("last_ff", "feed_forward2")):
        layer |= {f"{ours}.up": f"{theirs}.linear1", f"{ours}.down": f"{theirs}.linear2"}
    return layer


def make_tensors(place: str) -> Tensors:
    """Places of the parameters of an encoder that is at a `place` in a checkpoint."""
    convolutions = f"{place}.subsampling.layers.{{}}"
    return {
        "encoder_entrance.projection": f"{place}.subsampling.linear",
        **_convolution("encoder_entrance.convolution_{}", convolutions),
        **_convolution("encoder_entrance.depthwise_{}", convolutions),
        **nest_modules("encoder_{}", f"{place}.layers.{{}}", _make_layer()),
    }


STEPS = "layers.{}.conv.norm.num_batches_tracked"
"""Name of the number of steps that trained a layer's batch norm."""
