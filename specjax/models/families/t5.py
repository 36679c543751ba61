"""T5 checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.models.families.family import Family, Stored, Where
from specjax.models.families.generation import GENERATION, Special, eos_to_hf, special_tokens
from specjax.models.families.schema import (
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    number,
    only,
    rate,
    read,
    size,
)
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5 import T5, T5Config

IGNORED = r"(en|de)coder\.embed_tokens\.weight|.*EncDecAttention\.relative_attention_bias\.weight"
PROJECTIONS = (*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS))

SCHEMA = Schema(
    fields=SHARED
    | {
        "vocab_size": size(),
        "d_model": size(),
        "d_kv": size(),
        "d_ff": size(),
        "num_heads": size(),
        "num_layers": size(most=MOST_LAYERS),
        "num_decoder_layers": size(None, most=MOST_LAYERS),
        "feed_forward_proj": choice("relu", PROJECTIONS),
        "dense_act_fn": choice("relu", ACTIVATIONS),
        "is_gated_act": flag(False),
        # Halved for the two directions of the encoder, and again for single distances.
        "relative_attention_num_buckets": size(32, least=4),
        "relative_attention_max_distance": size(128),
        "layer_norm_epsilon": number(1e-6),
        "dropout_rate": rate(0.1),
        "tie_word_embeddings": flag(None),
        "scale_decoder_outputs": flag(True),
        "is_encoder_decoder": only(True),
    },
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    harmless=COMMON | {"classifier_dropout", "initializer_factor", "n_positions"},
)
SCHEMAS = {
    "t5": SCHEMA,
    "mt5": dataclasses.replace(
        SCHEMA,
        fields=SCHEMA.fields
        | {
            "feed_forward_proj": choice("gated-gelu", PROJECTIONS),
            "tie_word_embeddings": flag(True),
        },
    ),
}


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any) -> T5Config:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    family = hf["model_type"]
    found = read(SCHEMAS[family], hf, GENERATION)
    activation, gated = _feed_forward(found, hf)
    tied = found["tie_word_embeddings"]
    buckets, distance = "relative_attention_num_buckets", "relative_attention_max_distance"
    if found[distance] <= found[buckets] // 2:
        raise ValueError(
            f"{distance} is {found[distance]}; it must be above half of {buckets},"
            f" {found[buckets] // 2}"
        )
    special = special_tokens(hf, generation, found["vocab_size"])
    return T5Config(
        family=family,
        vocab_size=found["vocab_size"],
        d_model=found["d_model"],
        d_kv=found["d_kv"],
        d_ff=found["d_ff"],
        num_heads=found["num_heads"],
        num_layers=found["num_layers"],
        num_decoder_layers=_decoder_layers(found, hf),
        activation=activation,
        gated=gated,
        tied=tied is not False,
        # mT5 never scales, whatever its configuration says.
        scale_outputs=family == "t5" and hf.get("scale_decoder_outputs", tied is not False),
        buckets=found[buckets],
        max_distance=found[distance],
        eps=found["layer_norm_epsilon"],
        dropout=found["dropout_rate"],
        start_token=_start_token(special, found["vocab_size"]),
        eos=special.eos,
        pad=special.pad,
        dtype=dtype,
    )


def _feed_forward(found: dict[str, Any], hf: dict[str, Any]) -> tuple[str, bool]:
    """The activation and whether it is gated: Hugging Face lets the separate fields win."""
    projection = found["feed_forward_proj"]
    activation = projection.removeprefix("gated-")
    # Published "gated-gelu" checkpoints use the tanh approximation.
    activation = "gelu_new" if projection == "gated-gelu" else activation
    gated = hf.get("is_gated_act", projection.startswith("gated-"))
    return hf.get("dense_act_fn", activation), gated


def _decoder_layers(found: dict[str, Any], hf: dict[str, Any]) -> int:
    """As many as the encoder has; the alias `num_hidden_layers` does not count for that."""
    layers = found["num_decoder_layers"]
    if layers is None and "num_layers" not in hf and "num_hidden_layers" in hf:
        raise ValueError("num_decoder_layers is missing; num_hidden_layers is the encoder's alone")
    return layers or found["num_layers"]


def _start_token(special: Special, vocab_size: int) -> int:
    if special.start is None or special.start >= vocab_size:
        raise ValueError(
            f"decoder_start_token_id is {special.start}; a decoder starts with a token id from 0 to"
            f" {vocab_size - 1}"
        )
    return special.start


def names(config: T5Config) -> dict[Where, Stored]:
    """Where each parameter is stored."""
    found = {
        ("embedding",): Stored("shared.weight"),
        ("encoder_norm", "scale"): Stored("encoder.final_layer_norm.weight"),
        ("decoder_norm", "scale"): Stored("decoder.final_layer_norm.weight"),
    }
    if not config.tied:
        found["head", "kernel"] = Stored("lm_head.weight", True)
    cross = {"cross_attention": "EncDecAttention"}
    for stack, layers, extra in (
        ("encoder", config.num_layers, {}),
        ("decoder", config.num_decoder_layers, cross),
    ):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found[f"{stack}_bias", "table"] = Stored(bias)
        for index in range(layers):
            block = f"{stack}.block.{index}.layer"
            found |= _layer(f"{stack}_{index}", block, extra, config.gated)
    return found


def _layer(layer: str, block: str, extra: dict[str, str], gated: bool) -> dict[Where, Stored]:
    found = {}
    attentions = {"self_attention": "SelfAttention", **extra}
    for sub, (ours, theirs) in enumerate(attentions.items()):
        norm = ours.replace("attention", "norm")
        found[layer, norm, "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
        for w in "qkvo":
            found[layer, ours, w, "kernel"] = Stored(f"{block}.{sub}.{theirs}.{w}.weight", True)
    sub = len(attentions)
    found[layer, "ff_norm", "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
    matrices = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    for ours, theirs in matrices.items():
        tensor = f"{block}.{sub}.DenseReluDense.{theirs}.weight"
        found[layer, "ff", ours, "kernel"] = Stored(tensor, True)
    return found


def config_to_hf(config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    ends = {
        "decoder_start_token_id": config.start_token,
        "eos_token_id": eos_to_hf(config.eos),
        "pad_token_id": config.pad,
    }
    shape = {
        "model_type": config.family,
        "architectures": [f"{config.family.upper()}ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.d_kv,
        "d_ff": config.d_ff,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "feed_forward_proj": _projection(config),
        "dense_act_fn": config.activation,
        "is_gated_act": config.gated,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scale_outputs,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.max_distance,
        "layer_norm_epsilon": config.eps,
        "dropout_rate": config.dropout,
    }
    return shape | ends, ends


def _projection(config: T5Config) -> str:
    if not config.gated:
        return config.activation
    # Hugging Face calls the gated tanh approximation plain "gated-gelu".
    return "gated-gelu" if config.activation == "gelu_new" else f"gated-{config.activation}"


FAMILY = Family(T5, config_from_hf, config_to_hf, names, ignored=IGNORED)
