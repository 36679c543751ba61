"""Pix2Struct checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Family, Tensors, nest_modules
from specjax.hf.families.generation import GENERATION, read_decoder_tokens
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    NEEDED,
    SHARED,
    Schema,
    choice,
    flag,
    number,
    only,
    rate,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.layers import ACTIVATIONS
from specjax.models.pix2struct import Pix2Struct, Pix2StructConfig
from specjax.models.t5 import T5Config
from specjax.models.with_input import check_has_encoder

TEXT = Schema(
    SHARED
    | ALL_FULL
    | {
        "vocab_size": size(50_244),
        "hidden_size": size(768),
        "d_kv": size(64),
        "d_ff": size(2048),
        "num_layers": size(12, most=MOST_LAYERS),
        "num_heads": size(12),
        "dense_act_fn": choice("gelu_new", ACTIVATIONS),
        "relative_attention_num_buckets": size(32, least=2),
        "relative_attention_max_distance": size(128),
        "layer_norm_epsilon": number(1e-6),
        "dropout_rate": rate(0.1),
        "is_decoder": only(True),
    },
    # The whole model's fields overwrite the last two.
    COMMON
    | {
        "add_cross_attention",
        "initializer_factor",
        "initializer_range",
        "is_encoder_decoder",
        "tie_word_embeddings",
    },
    "pix2struct_text_model",
)
"""Fields of the decoder."""

VISION = Schema(
    SHARED
    | ALL_FULL
    | {
        "hidden_size": size(768),
        "patch_embed_hidden_size": size(768),
        "d_ff": size(2048),
        "d_kv": size(64),
        "num_hidden_layers": size(12, most=MOST_LAYERS),
        "num_attention_heads": size(12),
        "dense_act_fn": choice("gelu_new", ACTIVATIONS),
        "layer_norm_eps": number(1e-6),
        "dropout_rate": rate(0.0),
        "seq_len": size(4096, least=2),
    },
    # transformers' encoder has no relative positions.
    COMMON
    | {
        "attention_dropout",
        "initializer_factor",
        "initializer_range",
        "relative_attention_max_distance",
        "relative_attention_num_buckets",
    },
    "pix2struct_vision_model",
)
"""Fields of the encoder."""

SPECIAL = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
"""Default special tokens of the decoder's class, whose tokens are those of the whole model."""

ENCODER_WORDS = {
    "d_model": "hidden_size",
    "d_kv": "d_kv",
    "d_ff": "d_ff",
    "num_heads": "num_attention_heads",
    "activation": "dense_act_fn",
    "eps": "layer_norm_eps",
    "dropout": "dropout_rate",
}
DECODER_WORDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_kv": "d_kv",
    "d_ff": "d_ff",
    "num_heads": "num_heads",
    "num_decoder_layers": "num_layers",
    "activation": "dense_act_fn",
    "buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "eps": "layer_norm_epsilon",
    "dropout": "dropout_rate",
}
"""Attributes of the sides' shapes, and the fields that hold them as they are."""

PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "output"}
FEED_FORWARD = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


def _make_tensors() -> Tensors:
    """Places of the parameters of both sides."""
    encoder = {"self_norm": "pre_attention_layer_norm", "ff_norm": "pre_mlp_layer_norm"}
    encoder |= {f"self_attention.{w}": f"attention.{name}" for w, name in PROJECTIONS.items()}
    encoder |= {f"ff.{ours}": f"mlp.{theirs}" for ours, theirs in FEED_FORWARD.items()}
    decoder = {"ff_norm": "mlp.layer_norm"}
    decoder |= {f"ff.{w}": f"mlp.DenseReluDense.{name}" for w, name in FEED_FORWARD.items()}
    for ours, theirs in (("self", "self_attention"), ("cross", "encoder_decoder_attention")):
        decoder[f"{ours}_norm"] = f"{theirs}.layer_norm"
        for w, name in PROJECTIONS.items():
            decoder[f"{ours}_attention.{w}"] = f"{theirs}.attention.{name}"
    place = "encoder.embeddings"
    return {
        "encoder_entrance.projection": f"{place}.patch_projection",
        "encoder_entrance.row_embedding": f"{place}.row_embedder.weight",
        "encoder_entrance.column_embedding": f"{place}.column_embedder.weight",
        "encoder_norm": "encoder.layernorm",
        **nest_modules("encoder_{}", "encoder.encoder.layer.{}", encoder),
        "embedding": "decoder.embed_tokens.weight",
        "decoder_bias": "decoder.layer.0.self_attention.attention.relative_attention_bias",
        "decoder_norm": "decoder.final_layer_norm",
        "head": "decoder.lm_head",
        **nest_modules("decoder_{}", "decoder.layer.{}", decoder),
    }


@FAMILIES.register("pix2struct")
class Pix2StructFamily(Family[Pix2StructConfig]):
    """Pix2Struct: text of screenshots, figures and documents, of images of any shape."""

    model, shape = Pix2Struct, Pix2StructConfig
    architecture = "Pix2StructForConditionalGeneration"
    schema = Schema(
        SHARED
        | {
            "text_config": raw(NEEDED),
            "vision_config": raw(NEEDED),
            "tie_word_embeddings": flag(False),
            "is_encoder_decoder": only(True),
        },
        # A processor draws questions into the image, the model reads what it has drawn.
        COMMON | {"initializer_factor", "initializer_range", "is_vqa"},
        "pix2struct",
    )
    words: ClassVar[dict[str, str]] = {"tied": "tie_word_embeddings"}
    output = "decoder.lm_head.weight"
    tensors = _make_tensors()

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Pix2StructConfig:
        fields = read(self.schema, hf, GENERATION)
        vision = read_object(hf, "vision_config", lambda one: read(VISION, one))
        text = read_object(hf, "text_config", _read_text)
        if vision["hidden_size"] != text["hidden_size"]:
            raise ValueError(
                f"vision_config: hidden_size is {vision['hidden_size']}; it must be that of"
                f" text_config, {text['hidden_size']}, whose attention reads it"
            )
        tokens = read_decoder_tokens(hf["text_config"], generation, "text_config")
        encoder = {name: vision[field] for name, field in ENCODER_WORDS.items()}
        return self.build(
            fields,
            hf | SPECIAL | tokens,
            generation,
            dtype,
            **{name: text[field] for name, field in DECODER_WORDS.items()},
            num_layers=vision["num_hidden_layers"],
            vision=T5Config(vocab_size=1, num_layers=0, num_decoder_layers=0, **encoder),
            places=vision["seq_len"],
            pixels=vision["patch_embed_hidden_size"],
        )

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        vision = {field: getattr(config.vision, name) for name, field in ENCODER_WORDS.items()}
        text = {field: getattr(config, name) for name, field in DECODER_WORDS.items()}
        vision["num_hidden_layers"] = config.num_layers
        own = {"seq_len": config.places, "patch_embed_hidden_size": config.pixels}
        return {
            "text_config": {"model_type": TEXT.source} | text | self.ends(config),
            "vision_config": {"model_type": VISION.source} | vision | own,
        }


def _read_text(written: dict[str, Any]) -> dict[str, Any]:
    fields = read(TEXT, written, GENERATION)
    inner = fields["num_heads"] * fields["d_kv"]
    if inner != fields["hidden_size"]:
        raise ValueError(
            f"d_kv is {fields['d_kv']}; times num_heads, {fields['num_heads']}, it must be"
            f" hidden_size, {fields['hidden_size']}"
        )
    buckets, distance = "relative_attention_num_buckets", "relative_attention_max_distance"
    if fields[distance] <= fields[buckets] // 2:
        raise ValueError(
            f"{distance} is {fields[distance]}; it must be above half of {buckets},"
            f" {fields[buckets] // 2}"
        )
    return fields
