"""Encoders of images in Hugging Face's words: ViT, DeiT and Donut's Swin transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import (
    COMMON,
    MOST_LAYERS,
    SHARED,
    Field,
    Schema,
    choice,
    flag,
    format_value,
    head_width,
    is_int,
    number,
    only,
    rate,
    raw,
    read,
    size,
)
from specjax.models.info import Patches
from specjax.models.layers import ACTIVATIONS
from specjax.models.swin import SHRINK, SwinConfig
from specjax.models.vision import VisionConfig
from specjax.models.vit import VitConfig

MOST_PIXELS = 1 << 14
"""Of a side of an image."""

IMAGE: dict[str, Field] = SHARED | {
    "image_size": raw(224),
    "patch_size": raw(16),
    "num_channels": size(3),
    "hidden_act": choice("gelu", ACTIVATIONS),
    "hidden_dropout_prob": rate(0.0),
    "layer_norm_eps": number(1e-12),
    "qkv_bias": flag(True),
}
"""Fields of every encoder."""

HARMLESS = COMMON | {
    "attention_probs_dropout_prob",
    "initializer_range",
    "is_encoder_decoder",
    "tie_word_embeddings",
}

VIT = Schema(
    IMAGE
    | {
        "hidden_size": size(),
        "intermediate_size": size(),
        "num_hidden_layers": size(most=MOST_LAYERS),
        "num_attention_heads": size(),
        "head_dim": size(None),
    },
    # The pooled state is not read.
    HARMLESS | {"encoder_stride", "pooler_act", "pooler_output_size"},
)
SWIN = Schema(
    IMAGE
    | {
        "patch_size": raw(4),
        "embed_dim": size(96),
        "depths": raw([2, 2, 6, 2]),
        "num_heads": raw([3, 6, 12, 24]),
        "window_size": size(7),
        "mlp_ratio": number(4.0),
        "layer_norm_eps": number(1e-5),
        "use_absolute_embeddings": only(False, "transformers' sizes of them do not fit"),
    },
    # Sizes that follow from the others; paths are dropped in training only.
    HARMLESS | {"drop_path_rate", "hidden_size", "num_layers", "path_norm"},
    "donut-swin",
)

WORDS = {
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
    "qkv_bias": "qkv_bias",
}
VIT_WORDS = WORDS | {
    "d_model": "hidden_size",
    "ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads",
}
SWIN_WORDS = WORDS | {
    "first_width": "embed_dim",
    "window": "window_size",
    "ff_ratio": "mlp_ratio",
}
"""Attributes of shapes, and the fields that hold them as they are."""

PATCHES: Tensors = {
    "encoder.patches.kernel": Stored(
        "encoder.embeddings.patch_embeddings.projection.weight", transposed=True
    ),
    "encoder.patches.bias": "encoder.embeddings.patch_embeddings.projection.bias",
}
FEED_FORWARD: Tensors = {
    "self_norm": "layernorm_before",
    "ff_norm": "layernorm_after",
    "ff.up": "intermediate.dense",
    "ff.down": "output.dense",
    "self_attention.o": "attention.output.dense",
}
PROJECTIONS = {"q": "query", "k": "key", "v": "value"}
VIT_TENSORS: Tensors = {
    **PATCHES,
    "encoder.class_token": "encoder.embeddings.cls_token",
    "encoder.distillation_token": "encoder.embeddings.distillation_token",
    "encoder.position_embedding": "encoder.embeddings.position_embeddings",
    **nest_modules(
        "encoder.layers_{}",
        "encoder.encoder.layer.{}",
        FEED_FORWARD
        | {f"self_attention.{w}": f"attention.attention.{n}" for w, n in PROJECTIONS.items()},
    ),
    "encoder.norm": "encoder.layernorm",
}
SWIN_TENSORS: Tensors = {
    **PATCHES,
    "encoder.norm": "encoder.embeddings.norm",
    **nest_modules(
        "encoder.stages_{}",
        "encoder.encoder.layers.{}",
        {
            "shrink.norm": "downsample.norm",
            "shrink.reduction": "downsample.reduction",
            **nest_modules(
                "layers_{}",
                "blocks.{}",
                FEED_FORWARD
                | {f"self_attention.{w}": f"attention.self.{n}" for w, n in PROJECTIONS.items()}
                | {
                    "self_attention.distance_bias": "attention.self.relative_position_bias_table",
                },
            ),
        },
    ),
}


@dataclasses.dataclass(frozen=True)
class EncoderFormat:
    """How one encoder of images is written."""

    schema: Schema
    tensors: Tensors
    read: Callable[[str, dict[str, Any]], VisionConfig]
    write: Callable[[Any], dict[str, Any]]


def read_encoder(written: dict[str, Any]) -> VisionConfig:
    """The shape that the configuration of an encoder describes.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    family = written.get("model_type")
    if family not in ENCODERS:
        raise ValueError(
            f"model_type is {format_value(family)}; it must be one of {', '.join(ENCODERS)}"
        )
    form = ENCODERS[family]
    return form.read(family, read(form.schema, written, GENERATION))


def encoder_to_hf(vision: VisionConfig) -> dict[str, Any]:
    """The configuration of an encoder."""
    grid = vision.patches
    return {
        "model_type": vision.family,
        "image_size": list(grid.size),
        "patch_size": [grid.height, grid.breadth],
        "num_channels": grid.channels,
        **ENCODERS[vision.family].write(vision),
    }


def _read_vit(family: str, fields: dict[str, Any]) -> VitConfig:
    width, distilled = head_width(fields), family == "deit"
    if fields["head_dim"] not in (None, width):
        raise ValueError(
            f"head_dim is {fields['head_dim']}; it must be {width}, hidden_size over"
            " num_attention_heads"
        )
    grid = _read_grid(fields)
    return VitConfig(
        family=family,
        patches=dataclasses.replace(grid, states=grid.count + 1 + distilled),
        distilled=distilled,
        **{name: fields[field] for name, field in VIT_WORDS.items()},
    )


def _write_vit(vision: VitConfig) -> dict[str, Any]:
    return {field: getattr(vision, name) for name, field in VIT_WORDS.items()}


def _read_swin(family: str, fields: dict[str, Any]) -> SwinConfig:
    depths, heads = (_read_counts(fields, name) for name in ("depths", "num_heads"))
    if len(depths) != len(heads):
        raise ValueError(
            f"num_heads is {list(heads)}; it must have one number for each of the {len(depths)}"
            " stages of depths"
        )
    grid, shrunk = _read_grid(fields), SHRINK ** (len(depths) - 1)
    states = -(-grid.rows // shrunk) * -(-grid.columns // shrunk)
    return SwinConfig(
        family=family,
        patches=dataclasses.replace(grid, states=states),
        depths=depths,
        stage_heads=heads,
        **{name: fields[field] for name, field in SWIN_WORDS.items()},
    )


def _write_swin(vision: SwinConfig) -> dict[str, Any]:
    fields = {field: getattr(vision, name) for name, field in SWIN_WORDS.items()}
    return fields | {"depths": list(vision.depths), "num_heads": list(vision.stage_heads)}


ENCODERS = {
    "vit": EncoderFormat(VIT.derive("vit"), VIT_TENSORS, _read_vit, _write_vit),
    "deit": EncoderFormat(VIT.derive("deit"), VIT_TENSORS, _read_vit, _write_vit),
    "donut-swin": EncoderFormat(SWIN, SWIN_TENSORS, _read_swin, _write_swin),
}
"""By `model_type`."""


def _read_grid(fields: Mapping[str, Any]) -> Patches:
    """The grid of an image, a state for each patch."""
    (height, width), (tall, wide) = (_pair(fields, name) for name in ("image_size", "patch_size"))
    if height < tall or width < wide:
        raise ValueError(
            f"patch_size is {format_value(fields['patch_size'])}; it must be at most image_size,"
            f" {format_value(fields['image_size'])}"
        )
    if height % tall or width % wide:
        raise ValueError(
            f"image_size is {format_value(fields['image_size'])}; it must be a multiple of"
            f" patch_size, {format_value(fields['patch_size'])}"
        )
    rows, columns = height // tall, width // wide
    return Patches(rows, columns, tall, wide, fields["num_channels"], rows * columns)


def _pair(fields: Mapping[str, Any], name: str) -> tuple[int, int]:
    """A height and a width, which may be one number."""
    value = fields[name]
    pair = [value, value] if is_int(value) else value
    if (
        not isinstance(pair, list | tuple)
        or len(pair) != 2
        or not all(is_int(one) and 1 <= one <= MOST_PIXELS for one in pair)
    ):
        raise ValueError(
            f"{name} is {format_value(value)}; it must be an integer from 1 to {MOST_PIXELS}, or"
            " two: height and width"
        )
    return pair[0], pair[1]


def _read_counts(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A positive number for each stage."""
    value = fields[name]
    listed = isinstance(value, list | tuple) and 0 < len(value) <= MOST_LAYERS
    if not listed or not all(is_int(one) and 1 <= one <= MOST_LAYERS for one in value):
        raise ValueError(
            f"{name} is {format_value(value)}; it must be a list of integers from 1 to"
            f" {MOST_LAYERS}"
        )
    return tuple(value)
