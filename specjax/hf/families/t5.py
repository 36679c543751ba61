"""T5 checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Family, Shape, Stored, Tensors, nest_modules
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    number,
    only,
    rate,
    size,
)
from specjax.models.layers import ACTIVATIONS
from specjax.models.long_t5 import LongT5, LongT5Config
from specjax.models.t5 import T5, T5Config

IGNORED = r"(en|de)coder\.embed_tokens\.weight|.*EncDecAttention\.relative_attention_bias\.weight"
PROJECTIONS = (*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS))


def _feed_forward(fields: Mapping[str, Any], hf: Mapping[str, Any]) -> tuple[str, bool]:
    """The activation and whether it is gated: Hugging Face lets the separate fields win."""
    projection = fields["feed_forward_proj"]
    activation = projection.removeprefix("gated-")
    # Published "gated-gelu" checkpoints use the tanh approximation.
    activation = "gelu_new" if projection == "gated-gelu" else activation
    gated = hf.get("is_gated_act", projection.startswith("gated-"))
    return hf.get("dense_act_fn", activation), gated


def _decoder_layers(fields: Mapping[str, Any], hf: Mapping[str, Any]) -> int:
    """As many as the encoder has; the alias `num_hidden_layers` does not count for that."""
    layers = fields["num_decoder_layers"]
    if layers is None and "num_layers" not in hf and "num_hidden_layers" in hf:
        raise ValueError("num_decoder_layers is missing; num_hidden_layers is only the encoder's")
    return layers or fields["num_layers"]


def _side(side: str, attentions: Mapping[str, str]) -> Tensors:
    """The modules of an encoder or a decoder, whose `attentions` are ours -> theirs."""
    layer: dict[str, str] = {}
    for index, (ours, theirs) in enumerate(attentions.items()):
        layer[ours.replace("attention", "norm")] = f"{index}.layer_norm"
        layer |= {f"{ours}.{w}": f"{index}.{theirs}.{w}" for w in "qkvo"}
    index, block = len(attentions), f"{side}.block.{{}}.layer"
    layer["ff_norm"] = f"{index}.layer_norm"
    for ours, theirs in (("gate", "wi_0"), ("up", "wi_1"), ("down", "wo")):
        layer[f"ff.{ours}"] = f"{index}.DenseReluDense.{theirs}"
    biases = "0.SelfAttention.relative_attention_bias"
    return {
        f"{side}_norm": f"{side}.final_layer_norm",
        f"{side}_bias": f"{block.format(0)}.{biases}",
        f"{side}_bias_{{}}": f"{block}.{biases}",
        **nest_modules(f"{side}_{{}}", block, layer),
    }


def _projection(config: T5Config) -> str:
    if not config.gated:
        return config.activation
    # Hugging Face calls the gated tanh approximation plain "gated-gelu".
    return "gated-gelu" if config.activation == "gelu_new" else f"gated-{config.activation}"


@FAMILIES.register("t5")
class T5Family(Family[Shape]):
    """T5 v1.0 and v1.1, Flan-T5, FLAN-UL2, ByT5, Aya-101, MADLAD-400."""

    model, shape = T5, T5Config
    schema = Schema(
        SHARED
        | ALL_FULL
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
        COMMON | {"classifier_dropout", "initializer_factor", "is_decoder"},
        "t5",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "d_kv": "d_kv",
        "d_ff": "d_ff",
        "num_heads": "num_heads",
        "num_layers": "num_layers",
        "num_decoder_layers": "num_decoder_layers",
        "activation": "dense_act_fn",
        "gated": "is_gated_act",
        "tied": "tie_word_embeddings",
        "buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "eps": "layer_norm_epsilon",
        "dropout": "dropout_rate",
    }
    tensors: ClassVar[Tensors] = {
        "embedding": "shared.weight",
        "head": "lm_head",
        **_side("encoder", {"self_attention": "SelfAttention"}),
        **_side(
            "decoder", {"self_attention": "SelfAttention", "cross_attention": "EncDecAttention"}
        ),
    }
    ignored = IGNORED
    architecture = "T5ForConditionalGeneration"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        buckets, distance = "relative_attention_num_buckets", "relative_attention_max_distance"
        if fields[distance] <= fields[buckets] // 2:
            raise ValueError(
                f"{distance} is {fields[distance]}; it must be above half of {buckets},"
                f" {fields[buckets] // 2}"
            )
        return self.find_activation(fields, hf) | {
            "num_decoder_layers": _decoder_layers(fields, hf),
            "tied": fields["tie_word_embeddings"] is not False,
            "scale_outputs": self.scales(fields, hf),
        }

    def find_activation(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of the feed-forward networks."""
        activation, gated = _feed_forward(fields, hf)
        return {"activation": activation, "gated": gated}

    def scales(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> bool:
        """Whether states are scaled before the output layer; by default if it is tied."""
        return hf.get("scale_decoder_outputs", fields["tie_word_embeddings"] is not False)

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = {
            "feed_forward_proj": _projection(config),
            "scale_decoder_outputs": config.scale_outputs,
        }
        return {name: value for name, value in fields.items() if name in self.schema.fields}

    def table(self, config: Any) -> Tensors:
        """Without a gate the way up has a name of its own."""
        if config.gated:
            return self.tensors
        return {name: _plain(entry) for name, entry in self.tensors.items()}


def _plain(entry: str | Stored) -> str | Stored:
    return entry.replace(".wi_1", ".wi") if isinstance(entry, str) else entry


GATED = T5Family.schema.derive(
    feed_forward_proj=choice("gated-gelu", PROJECTIONS), tie_word_embeddings=flag(True)
)
"""Fields of mT5 and umT5."""


@FAMILIES.register("mt5")
class MT5Family(T5Family[T5Config]):
    """mT5, whose outputs are never scaled, for any configuration."""

    schema = GATED.derive("mt5").without("scale_decoder_outputs")
    architecture = "MT5ForConditionalGeneration"

    def scales(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> bool:
        return False


@FAMILIES.register("umt5")
class UMT5Family(T5Family[T5Config]):
    """umT5: separate relative positions in every layer."""

    schema = GATED.derive("umt5")
    architecture = "UMT5ForConditionalGeneration"
    constants: ClassVar[dict[str, Any]] = {"layer_tables": True}

    def to_fields(self, config: Any) -> dict[str, Any]:
        """Writes both fields for scaled outputs: versions of transformers read one each."""
        tied = config.tied or config.scale_outputs
        return super().to_fields(config) | {"tie_word_embeddings": tied}


LOCAL, GLOBAL = ATTENTIONS = "local", "transient-global"
"""Kinds of attention in LongT5's encoder."""


@FAMILIES.register("longt5")
class LongT5Family(T5Family[LongT5Config]):
    """LongT5: local or transient-global attention in the encoder (Guo et al. 2022)."""

    model, shape = LongT5, LongT5Config
    schema = T5Family.schema.without("classifier_dropout").derive(
        "longt5",
        local_radius=size(127, least=0),
        global_block_size=size(16),
        encoder_attention_type=choice(LOCAL, ATTENTIONS),
    )
    words: ClassVar[dict[str, str]] = {**T5Family.words, "radius": "local_radius"}
    architecture = "LongT5ForConditionalGeneration"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        is_global = fields["encoder_attention_type"] == GLOBAL
        block = fields["global_block_size"] if is_global else 0
        return super().from_fields(fields, hf) | {"global_block": block}

    def to_fields(self, config: Any) -> dict[str, Any]:
        kind = {"encoder_attention_type": GLOBAL if config.global_block else LOCAL}
        size = {"global_block_size": config.global_block} if config.global_block else {}
        return super().to_fields(config) | kind | size

    def table(self, config: Any) -> Tensors:
        """The encoder's attention has names of its own."""
        own = "TransientGlobalSelfAttention" if config.global_block else "LocalSelfAttention"
        first = "encoder.block.{}.layer.0.TransientGlobalSelfAttention"
        tensors = {
            name: entry.replace("SelfAttention", own) if name.startswith("encoder") else entry
            for name, entry in super().table(config).items()
            if isinstance(entry, str)
        }
        return tensors | {
            "block_bias": f"{first.format(0)}.global_relative_attention_bias",
            "encoder_{}.block_norm": f"{first}.global_input_layer_norm",
        }
