"""Gemma 3n: four residual streams, layer inputs, shared caches, and sparse feed-forwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, SANDWICH, Decoder, TwoRotations, find_local_base, whole
from specjax.hf.families.family import nest_modules
from specjax.hf.families.gemma import TANH
from specjax.hf.families.gemma4 import LAYER_INPUTS, UNSHARED, share_caches
from specjax.hf.families.layer_types import WINDOWS, every
from specjax.hf.families.schema import (
    choice,
    flag,
    format_value,
    is_int,
    is_number,
    number,
    raw,
    size,
)
from specjax.hf.families.text_parts import TextPart, make_schema
from specjax.models.altup import AltUp
from specjax.models.causal_config import Heads
from specjax.models.layer_inputs import LayerInputs
from specjax.models.layers import ACTIVATIONS

SPARSE_LAYERS, SPARSITY = 10, 0.95
"""The first layers, and the share of their gates that is cut, of deeper models that name none."""

STREAMS: dict[str, str] = {
    "update.router_norm": "altup.router_norm",
    "update.router": "altup.modality_router",
    "update.prediction": "altup.prediction_coefs",
    "update.correction": "altup.correction_coefs",
    "update.scale": "altup.correct_output_scale",
    "laurel.reduction": "laurel.linear_left",
    "laurel.expansion": "laurel.linear_right",
    "laurel.norm": "laurel.post_laurel_norm",
}
"""Modules of a layer about its residual streams and sums."""


@FAMILIES.register("gemma3n_text")
class Gemma3nText(TwoRotations):
    """Gemma 3n E2B and E4B: four residual streams, sparse feed-forwards, shared caches."""

    schema = Decoder.schema.without("hidden_act").derive(
        "gemma3n_text",
        **BIAS,
        **WINDOWS,
        **rotary.TWO_KINDS,
        hidden_activation=choice(TANH, ACTIVATIONS),
        intermediate_size=raw(),
        activation_sparsity_pattern=raw(),
        final_logit_softcapping=number(30.0),
        hidden_size_per_layer_input=size(256),
        vocab_size_per_layer_input=size(262_144),
        num_kv_shared_layers=size(15, least=0),
        altup_num_inputs=size(4),
        altup_active_idx=size(0, least=0),
        altup_correct_scale=flag(True),
        altup_coef_clip=number(120.0),  # of training
        laurel_rank=size(64),
    )
    words: ClassVar[dict[str, str]] = Decoder.words | {
        "activation": "hidden_activation",
        "laurel_rank": "laurel_rank",
        "logit_cap": "final_logit_softcapping",
    }
    constants: ClassVar[dict[str, Any]] = {
        "post_norm": True,
        "qk_norm": True,
        "value_norm": True,
        "query_scale": 1.0,
    }
    architecture = "Gemma3nForCausalLM"
    tensors: ClassVar[dict[str, Any]] = {
        **whole(SANDWICH),
        **LAYER_INPUTS,
        **nest_modules("layers_{}", "model.layers.{}", STREAMS),
        "streams.opening_{}": "model.altup_projections.{}",
        "streams.closing_{}": "model.altup_unembed_projections.{}",
    }
    ignored = UNSHARED

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(5, fields)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        layers, inputs = fields["num_hidden_layers"], fields["vocab_size_per_layer_input"]
        one = Heads(attributes["num_kv_heads"], attributes["d_head"])
        windows = attributes["windows"] or (0,) * layers
        d_ffs, sparsities = _read_widths(fields, layers), _read_sparsities(fields, layers)
        return attributes | {
            "shared_caches": share_caches(fields, (one,) * layers, windows),
            "d_ff": d_ffs[0],
            "d_ffs": d_ffs if len({*d_ffs}) > 1 else (),
            "sparsities": sparsities if any(sparsities) else (),
            "layer_inputs": LayerInputs(fields["hidden_size_per_layer_input"], inputs),
            "altup": _read_streams(fields),
            "embedding_scale": math.sqrt(fields["hidden_size"]),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        inputs, altup = config.layer_inputs, config.altup
        base = find_local_base(config)
        return super().to_fields(config) | {
            "intermediate_size": list(config.d_ffs) or config.d_ff,
            "activation_sparsity_pattern": list(config.sparsities) or [0.0] * config.num_layers,
            "hidden_size_per_layer_input": inputs.width,
            "vocab_size_per_layer_input": inputs.vocab_size,
            "num_kv_shared_layers": len(config.shared_caches),
            "altup_num_inputs": altup.streams,
            "altup_active_idx": altup.active,
            "altup_correct_scale": altup.scaled,
            **({"rope_local_base_freq": base} if base else {}),
        }


def _read_widths(fields: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The width of each layer's feed-forward.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    given = fields["intermediate_size"]
    widths = given if isinstance(given, list) else [given] * layers
    if len(widths) != layers or not all(is_int(width) and width > 0 for width in widths):
        raise ValueError(
            f"intermediate_size is {format_value(given)}; it must be a positive integer, or one for"
            f" each of the {layers} layers"
        )
    return tuple(widths)


def _read_sparsities(fields: Mapping[str, Any], layers: int) -> tuple[float, ...]:
    """The share of each layer's gates that is cut.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    given = fields["activation_sparsity_pattern"]
    if given is None:
        return tuple(SPARSITY * (layer < SPARSE_LAYERS < layers) for layer in range(layers))
    listed = isinstance(given, list) and len(given) == layers
    if not listed or not all(is_number(share) and 0 <= share < 1 for share in given):
        raise ValueError(
            f"activation_sparsity_pattern is {format_value(given)}; it must be null, or a list of"
            f" {layers} numbers from 0 to below 1, one for each layer"
        )
    return tuple(map(float, given))


def _read_streams(fields: Mapping[str, Any]) -> AltUp:
    """The residual streams.

    Raises:
      ValueError: when the active one is none of them.
    """
    streams, active = fields["altup_num_inputs"], fields["altup_active_idx"]
    if active >= streams:
        raise ValueError(
            f"altup_active_idx is {active}; it must be below altup_num_inputs, {streams}"
        )
    return AltUp(streams, active, fields["altup_correct_scale"])


@FAMILIES.register("gemma3n")
class Gemma3n(TextPart):
    """The text part of a Gemma 3n that also reads images and audio, exported as a text model."""

    schema = make_schema(
        "gemma3n",
        (
            "audio_config",
            "audio_soft_tokens_per_image",
            "audio_token_id",
            "boa_token_id",
            "boi_token_id",
            "eoa_token_id",
            "eoi_token_id",
            "image_token_id",
            "initializer_range",
            "vision_soft_tokens_per_image",
        ),
    )
    families: ClassVar[dict[str, str]] = {"gemma3n_text": "gemma3n_text"}
    ignored = rf"{UNSHARED}|model\.(vision_tower|audio_tower|embed_vision|embed_audio)\..*"
