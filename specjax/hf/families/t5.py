"""T5 checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families.declared import declared_by
from specjax.hf.families.encoder_decoder import start_token
from specjax.hf.families.family import Family, Stored
from specjax.hf.families.generation import GENERATION, ends_to_hf, special_tokens
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
    read,
    size,
)
from specjax.models.base import Where
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5 import T5, T5Config

IGNORED = r"(en|de)coder\.embed_tokens\.weight|.*EncDecAttention\.relative_attention_bias\.weight"
PROJECTIONS = (*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS))


def _feed_forward(fields: dict[str, Any], hf: dict[str, Any]) -> tuple[str, bool]:
    """The activation and whether it is gated: Hugging Face lets the separate fields win."""
    projection = fields["feed_forward_proj"]
    activation = projection.removeprefix("gated-")
    # Published "gated-gelu" checkpoints use the tanh approximation.
    activation = "gelu_new" if projection == "gated-gelu" else activation
    gated = hf.get("is_gated_act", projection.startswith("gated-"))
    return hf.get("dense_act_fn", activation), gated


def _decoder_layers(fields: dict[str, Any], hf: dict[str, Any]) -> int:
    """As many as the encoder has; the alias `num_hidden_layers` does not count for that."""
    layers = fields["num_decoder_layers"]
    if layers is None and "num_layers" not in hf and "num_hidden_layers" in hf:
        raise ValueError("num_decoder_layers is missing; num_hidden_layers is the encoder's alone")
    return layers or fields["num_layers"]


def _layer(layer: str, block: str, extra: dict[str, str], gated: bool) -> dict[Where, Stored]:
    stored = {}
    attentions = {"self_attention": "SelfAttention", **extra}
    for sub, (ours, theirs) in enumerate(attentions.items()):
        norm = ours.replace("attention", "norm")
        stored[layer, norm, "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
        for w in "qkvo":
            stored[layer, ours, w, "kernel"] = Stored(f"{block}.{sub}.{theirs}.{w}.weight", True)
    sub = len(attentions)
    stored[layer, "ff_norm", "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
    matrices = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    for ours, theirs in matrices.items():
        tensor = f"{block}.{sub}.DenseReluDense.{theirs}.weight"
        stored[layer, "ff", ours, "kernel"] = Stored(tensor, True)
    return stored


def _projection(config: T5Config) -> str:
    if not config.gated:
        return config.activation
    # Hugging Face calls the gated tanh approximation plain "gated-gelu".
    return "gated-gelu" if config.activation == "gelu_new" else f"gated-{config.activation}"


@FAMILIES.register("t5")
class T5Family(Family):
    """T5 v1.0 and v1.1, Flan-T5, FLAN-UL2, ByT5, Aya-101, MADLAD-400."""

    model = T5
    schema = Schema(
        fields=SHARED
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
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "num_heads",
            "num_hidden_layers": "num_layers",
            "head_dim": "d_kv",
        },
        harmless=COMMON | {"classifier_dropout", "initializer_factor", "is_decoder"},
        declared=declared_by("t5"),
    )
    ignored = IGNORED
    architecture = "T5ForConditionalGeneration"
    layer_tables = False
    """Whether each layer has relative position biases of its own."""

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> T5Config:
        fields = read(self.schema, hf, GENERATION)
        activation, gated = _feed_forward(fields, hf)
        tied = fields["tie_word_embeddings"]
        buckets, distance = "relative_attention_num_buckets", "relative_attention_max_distance"
        if fields[distance] <= fields[buckets] // 2:
            raise ValueError(
                f"{distance} is {fields[distance]}; it must be above half of {buckets},"
                f" {fields[buckets] // 2}"
            )
        special = special_tokens(hf, generation, fields["vocab_size"])
        return T5Config(
            family=hf["model_type"],
            vocab_size=fields["vocab_size"],
            d_model=fields["d_model"],
            d_kv=fields["d_kv"],
            d_ff=fields["d_ff"],
            num_heads=fields["num_heads"],
            num_layers=fields["num_layers"],
            num_decoder_layers=_decoder_layers(fields, hf),
            activation=activation,
            gated=gated,
            tied=tied is not False,
            scale_outputs=self.scales(fields, hf),
            buckets=fields[buckets],
            max_distance=fields[distance],
            layer_tables=self.layer_tables,
            eps=fields["layer_norm_epsilon"],
            dropout=fields["dropout_rate"],
            start_token=start_token(special, fields["vocab_size"], generation),
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
        )

    def scales(self, fields: dict[str, Any], hf: dict[str, Any]) -> bool:
        """Whether states are scaled before the output layer: tied ones, if nothing else is said."""
        return hf.get("scale_decoder_outputs", fields["tie_word_embeddings"] is not False)

    def config_to_hf(self, config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = ends_to_hf(config, decoder_start_token_id=config.start_token)
        shape = {
            "model_type": config.family,
            "architectures": [self.architecture],
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

    def names(self, config: T5Config) -> dict[Where, Stored]:
        stored = {
            ("embedding",): Stored("shared.weight"),
            ("encoder_norm", "scale"): Stored("encoder.final_layer_norm.weight"),
            ("decoder_norm", "scale"): Stored("decoder.final_layer_norm.weight"),
        }
        if not config.tied:
            stored["head", "kernel"] = Stored("lm_head.weight", True)
        cross = {"cross_attention": "EncDecAttention"}
        for stack, layers, extra in (
            ("encoder", config.num_layers, {}),
            ("decoder", config.num_decoder_layers, cross),
        ):
            for index in range(layers):
                block = f"{stack}.block.{index}.layer"
                stored |= _layer(f"{stack}_{index}", block, extra, config.gated)
                if config.layer_tables or not index:
                    table = f"{stack}_bias_{index}" if config.layer_tables else f"{stack}_bias"
                    tensor = f"{block}.0.SelfAttention.relative_attention_bias.weight"
                    stored[table, "table"] = Stored(tensor)
        return stored


GATED = T5Family.schema.changed(
    feed_forward_proj=choice("gated-gelu", PROJECTIONS), tie_word_embeddings=flag(True)
)
"""Fields of mT5 and umT5."""


@FAMILIES.register("mt5")
class MT5Family(T5Family):
    """mT5, whose outputs are never scaled, whatever its configuration says."""

    schema = GATED.changed("mt5").without("scale_decoder_outputs")
    architecture = "MT5ForConditionalGeneration"

    def config_to_hf(self, config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        del shape["scale_decoder_outputs"]
        return shape, ends

    def scales(self, fields: dict[str, Any], hf: dict[str, Any]) -> bool:
        return False


@FAMILIES.register("umt5")
class UMT5Family(T5Family):
    """umT5: relative positions of its own in every layer."""

    schema = GATED.changed("umt5")
    architecture = "UMT5ForConditionalGeneration"
    layer_tables = True

    def config_to_hf(self, config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
        """Says in both words whether outputs are scaled: versions of transformers read one each."""
        shape, ends = super().config_to_hf(config)
        return shape | {"tie_word_embeddings": config.tied or config.scale_outputs}, ends
