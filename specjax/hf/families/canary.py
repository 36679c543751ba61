"""Canary checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Family, Stored, Tensors
from specjax.hf.families.generation import GENERATION, TOKENS, read_decoder_tokens
from specjax.hf.families.moonshine import DECODER_LAYER, nest_layers
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    NEEDED,
    SHARED,
    Field,
    Schema,
    choice,
    filled_heads,
    flag,
    format_value,
    head_width,
    is_int,
    only,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.canary import Canary, CanaryConfig
from specjax.models.conformer import ConformerConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Sinusoids
from specjax.models.with_input import check_has_encoder


def _is_odd(value: Any) -> bool:
    return is_int(value) and value > 0 and value % 2 == 1


HEADS, KEY_HEADS = "num_attention_heads", "num_key_value_heads"
STACK = (
    SHARED
    | ALL_FULL
    | {
        "hidden_size": size(1024, least=4),
        "intermediate_size": size(4096),
        "num_hidden_layers": size(24, most=MOST_LAYERS),
        HEADS: size(8),
        KEY_HEADS: size(None),
        "head_dim": size(None),
        "attention_bias": flag(True),
    }
)
"""Fields of encoder and decoder."""

ENCODER = Schema(
    STACK
    | {
        "hidden_act": choice("silu", ACTIVATIONS),
        "max_position_embeddings": size(5000),
        "convolution_bias": flag(True),
        "conv_kernel_size": Field(9, "an odd integer", _is_odd),
        "subsampling_factor": size(8, least=2),
        "subsampling_conv_channels": size(256),
        "subsampling_conv_kernel_size": size(3),
        "subsampling_conv_stride": size(2),
        "num_mel_bins": size(80),
        "scale_input": flag(True),
    },
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
DECODER = Schema(
    STACK
    | {
        "vocab_size": size(16_384),
        "hidden_act": choice("relu", ACTIVATIONS),
        "max_position_embeddings": size(1024),
    },
    # The whole model's fields count of the last two.
    COMMON
    | {"attention_dropout", "initializer_range", "is_encoder_decoder", "tie_word_embeddings"},
    "canary_decoder",
)
"""Fields of the two sides; dropout is of training, which Canary does not have here."""

START = {"decoder_start_token_id": 7}
SPECIAL = {"bos_token_id": 4, "eos_token_id": 3, "pad_token_id": 2}
"""Default special tokens; those of the decoder count where the whole model's are null."""

ENCODER_WORDS = {
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
DECODER_WORDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_heads": HEADS,
    "d_head": "head_dim",
    "num_decoder_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "max_positions": "max_position_embeddings",
    "key_bias": "attention_bias",
    "query_value_bias": "attention_bias",
    "output_bias": "attention_bias",
}
"""Attributes of the sides' shapes, and the fields that hold them as they are."""

ATTENTION = {f"self_attention.{w}": f"self_attn.{w}_proj" for w in "qkvo"}
BATCH_NORM = {"mean": "running_mean", "variance": "running_var", "scale": "weight", "bias": "bias"}


def _parameters(ours: str, theirs: str) -> Tensors:
    """The kernel, whose axes are turned around, and the bias of a convolution."""
    return {
        f"{ours}.kernel": Stored(f"{theirs}.weight", transposed=True),
        f"{ours}.bias": Stored(f"{theirs}.bias"),
    }


def _make_conformer_layer() -> Tensors:
    """Places of the parameters of a layer of the encoder."""
    layer: dict[str, str | Stored] = {
        "first_norm": "norm_feed_forward1",
        "self_norm": "norm_self_att",
        "convolution_norm": "norm_conv",
        "last_norm": "norm_feed_forward2",
        "norm": "norm_out",
        "self_attention.distance": "self_attn.relative_k_proj",
        "self_attention.content_bias": "self_attn.bias_u",
        "self_attention.distance_bias": "self_attn.bias_v",
        **ATTENTION,
    }
    for ours, theirs in (("first_ff", "feed_forward1"), ("last_ff", "feed_forward2")):
        layer |= {f"{ours}.up": f"{theirs}.linear1", f"{ours}.down": f"{theirs}.linear2"}
    parts = {"expansion": "pointwise_conv1", "depthwise": "depthwise_conv"}
    for ours, theirs in (parts | {"projection": "pointwise_conv2"}).items():
        layer |= _parameters(f"convolution.{ours}", f"conv.{theirs}")
    return layer | {
        f"convolution.norm.{ours}": Stored(f"conv.norm.{theirs}")
        for ours, theirs in BATCH_NORM.items()
    }


@FAMILIES.register("canary")
class CanaryFamily(Family[CanaryConfig]):
    """Canary: speech of many languages to text of any of them, from log-mel frames."""

    model, shape = Canary, CanaryConfig
    architecture = "CanaryForConditionalGeneration"
    schema = Schema(
        SHARED
        | {
            "encoder_config": raw(NEEDED),
            "decoder_config": raw(NEEDED),
            "vocab_size": size(16_384),
            "tie_word_embeddings": flag(True),
            "is_encoder_decoder": only(True),
        },
        COMMON | {"initializer_range"},
        "canary",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "tied": "tie_word_embeddings",
    }
    constants: ClassVar[dict[str, Any]] = {"embedding_norm": True, "logits_bias": True}
    tensors: ClassVar[Tensors] = {
        "embedding": "model.decoder.embed_tokens.weight",
        "head": "proj_out",
        "logits_bias": Stored("proj_out.bias", stacked=1),
        "decoder_entrance.norm": "model.decoder.embedding_layernorm",
        "decoder_norm": "model.decoder.norm",
        "encoder_entrance.projection": "model.encoder.subsampling.linear",
        **_parameters("encoder_entrance.convolution_{}", "model.encoder.subsampling.layers.{}"),
        **_parameters("encoder_entrance.depthwise_{}", "model.encoder.subsampling.layers.{}"),
        **nest_layers("encoder", _make_conformer_layer()),
        **nest_layers("decoder", DECODER_LAYER),
    }
    prefix = "model."
    output = "proj_out.weight"
    ignored = r".*(num_batches_tracked|inv_freq|positional_embedding)"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CanaryConfig:
        fields = read(self.schema, hf, GENERATION)
        encoder = read_object(hf, "encoder_config", _read_encoder)
        decoder = read_object(hf, "decoder_config", _read_decoder)
        for name, ours, others in (
            ("vocab_size", fields, "the whole model"),
            ("hidden_size", encoder, "encoder_config"),
        ):
            if decoder[name] != ours[name]:
                raise ValueError(
                    f"decoder_config: {name} is {decoder[name]}; it must be that of {others},"
                    f" {ours[name]}"
                )
        conformer = ConformerConfig(
            convolutions=int(math.log2(encoder["subsampling_factor"])),
            **{name: encoder[field] for name, field in ENCODER_WORDS.items()},
        )
        _check_frequencies(conformer)
        tokens = read_decoder_tokens(hf["decoder_config"], generation, "decoder_config")
        given = {name: hf[name] for name in TOKENS if hf.get(name) is not None}
        nulls = {name: token for name, token in tokens.items() if name in hf}
        return self.build(
            fields,
            START | hf | SPECIAL | nulls | given,
            generation,
            dtype,
            **{name: decoder[field] for name, field in DECODER_WORDS.items()},
            sinusoids=Sinusoids(decoder["hidden_size"], scale=decoder["hidden_size"] ** -0.5),
            num_layers=encoder["num_hidden_layers"],
            encoder_ff=conformer.d_ff,
            encoder_heads=conformer.num_heads,
            conformer=conformer,
        )

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        conformer = config.conformer
        encoder = {field: getattr(conformer, name) for name, field in ENCODER_WORDS.items()}
        decoder = {field: getattr(config, name) for name, field in DECODER_WORDS.items()}
        own = {
            "num_hidden_layers": config.num_layers,
            KEY_HEADS: conformer.num_heads,
            "subsampling_factor": 2**conformer.convolutions,
        }
        return {
            "encoder_config": {"model_type": ENCODER.source} | encoder | own,
            "decoder_config": {"model_type": DECODER.source, KEY_HEADS: config.num_heads} | decoder,
        }

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Steps that trained the batch norms, which transformers' model reports where missing."""
        place = "model.encoder.layers.{}.conv.norm.num_batches_tracked"
        return {place.format(layer): np.zeros((), np.int64) for layer in range(config.num_layers)}


def _read_side(schema: Schema, written: dict[str, Any]) -> dict[str, Any]:
    """The checked fields of one side, which is of one kind and has no grouped heads."""
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


def _read_encoder(written: dict[str, Any]) -> dict[str, Any]:
    fields = _read_side(ENCODER, written)
    filled_heads(fields)
    return fields


def _read_decoder(written: dict[str, Any]) -> dict[str, Any]:
    fields = _read_side(DECODER, written)
    head_width(fields)  # transformers' class has no others, of whatever width heads are
    return fields


def _check_frequencies(conformer: ConformerConfig) -> None:
    """Refuses frames of which the convolutions leave other numbers than transformers' layers read.

    Raises:
      ValueError: naming the field.
    """
    read_by_layers = conformer.mels // conformer.stride**conformer.convolutions
    if conformer.frequencies != read_by_layers or not read_by_layers:
        raise ValueError(
            f"encoder_config: num_mel_bins is {conformer.mels}; the convolutions must leave"
            f" {max(read_by_layers, 1)} of them, and leave {conformer.frequencies}"
        )
