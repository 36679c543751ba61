"""Image-to-text checkpoints: an encoder and a decoder with configurations of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.bart import BEFORE_POSITIONS, decoder_modules
from specjax.hf.families.family import Family, Tensors
from specjax.hf.families.generation import GENERATION, read_decoder_tokens
from specjax.hf.families.schema import (
    COMMON,
    MOST_LAYERS,
    NEEDED,
    SHARED,
    Schema,
    choice,
    flag,
    format_value,
    is_int,
    only,
    rate,
    raw,
    read,
    read_object,
    size,
)
from specjax.hf.families.vision_encoders import ENCODERS, encoder_to_hf, read_encoder
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Sinusoids
from specjax.models.vision import ImageToText, ImageToTextConfig, VisionConfig
from specjax.models.with_input import check_has_encoder

DECODER = Schema(
    SHARED
    | {
        "vocab_size": size(),
        "d_model": size(),
        "decoder_layers": size(most=MOST_LAYERS),
        "decoder_attention_heads": size(),
        "decoder_ffn_dim": size(),
        "max_position_embeddings": size(512),
        "activation_function": choice("gelu", ACTIVATIONS),
        "dropout": rate(0.1),
        "activation_dropout": rate(0.0),
        "scale_embedding": flag(False),
        "tie_word_embeddings": flag(True),
        "cross_attention_hidden_size": size(None),
    },
    COMMON
    | {
        "attention_dropout",
        "decoder_layerdrop",
        "init_std",
        "is_decoder",
        "is_encoder_decoder",
    },
)
"""Fields of BART's decoder without an encoder."""

ENCODER_SIDE = {
    "classifier_dropout",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_layerdrop",
    "encoder_layers",
    "forced_eos_token_id",
}
"""Fields of an encoder that mBART's class declares and its decoder alone does not read."""

TROCR, MBART = "trocr", "mbart"
DECODERS = {
    TROCR: DECODER.derive(
        TROCR, use_learned_position_embeddings=flag(True), layernorm_embedding=flag(True)
    ),
    MBART: DECODER.derive(MBART, ENCODER_SIDE, max_position_embeddings=size(1024)),
}
CONSTANTS: dict[str, dict[str, Any]] = {
    TROCR: {"post_norm": True, "final_norm": False},
    MBART: {"embedding_norm": True},
}
"""Schemas and attributes of the decoders by `model_type`."""

WORDS = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "d_ff": "decoder_ffn_dim",
    "num_heads": "decoder_attention_heads",
    "num_decoder_layers": "decoder_layers",
    "activation": "activation_function",
    "scale_embedding": "scale_embedding",
    "tied": "tie_word_embeddings",
    "dropout": "dropout",
    "ff_dropout": "activation_dropout",
}
"""Attributes of the decoder's shape, and the fields that hold them as they are."""


@FAMILIES.register("vision-encoder-decoder")
class VisionEncoderDecoder(Family[ImageToTextConfig]):
    """TrOCR and Donut: ViT, DeiT or Swin before the decoder of BART or mBART."""

    model, shape = ImageToText, ImageToTextConfig
    architecture = "VisionEncoderDecoderModel"
    schema = Schema(
        SHARED | {"encoder": raw(NEEDED), "decoder": raw(NEEDED), "is_encoder_decoder": only(True)},
        COMMON | {"tie_word_embeddings", "vocab_size"},
        "vision-encoder-decoder",
    )
    ignored = (
        r"encoder\.pooler\..*|encoder\.embeddings\.mask_token|.*\.relative_position_index"
        r"|decoder\.model\.decoder\.(version|embed_positions\.(weights|_float_tensor))"
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> ImageToTextConfig:
        checked = read(self.schema, hf, GENERATION)
        vision = read_object(hf, "encoder", read_encoder)
        decoder = read_object(_share_vocabulary(hf), "decoder", _read_decoder)
        tokens = read_decoder_tokens(hf["decoder"], generation)
        attributes = {name: decoder[field] for name, field in WORDS.items()}
        attributes |= CONSTANTS[hf["decoder"]["model_type"]]
        attributes |= _read_places(decoder, hf["decoder"].get("pad_token_id", 1))
        attributes |= {
            "vision": vision,
            "encoder_ff": vision.d_ff,
            "encoder_heads": vision.num_heads,
            "num_layers": 1,
            "projected": _is_projected(decoder, vision),
        }
        return self.build(checked, tokens | hf, generation, dtype, **attributes)

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        return {
            "encoder": encoder_to_hf(config.vision),
            "decoder": _decoder_to_hf(config) | self.ends(config),
            "tie_word_embeddings": False,  # each side ties its own
        }

    def table(self, config: Any) -> Tensors:
        return {
            **ENCODERS[config.vision.family].tensors,
            "encoder_projection": "enc_to_dec_proj",
            "embedding": "decoder.model.decoder.embed_tokens.weight",
            "head": "decoder.output_projection" if config.post_norm else "decoder.lm_head",
            **decoder_modules("decoder.model.decoder"),
        }


def _share_vocabulary(hf: dict[str, Any]) -> dict[str, Any]:
    """The configuration, whose decoder has the whole model's vocabulary where it names none."""
    decoder = hf.get("decoder")
    if not isinstance(decoder, dict) or "vocab_size" not in hf:
        return hf
    return hf | {"decoder": {"vocab_size": hf["vocab_size"]} | decoder}


def _read_decoder(written: dict[str, Any]) -> dict[str, Any]:
    family = written.get("model_type")
    if family not in DECODERS:
        raise ValueError(
            f"model_type is {format_value(family)}; it must be one of {', '.join(DECODERS)}"
        )
    return read(DECODERS[family], written, GENERATION)


def _read_places(decoder: Mapping[str, Any], pad: Any) -> dict[str, Any]:
    """Attributes of the decoder's positions: learned, or sinusoids of any number."""
    norm = {"embedding_norm": decoder.get("layernorm_embedding", True)}
    if decoder.get("use_learned_position_embeddings", True):
        most = decoder["max_position_embeddings"]
        return norm | {"max_positions": most, "offset": BEFORE_POSITIONS}
    if not is_int(pad) or not 0 <= pad < decoder["vocab_size"]:
        raise ValueError(
            f"pad_token_id is {format_value(pad)}; positions need a token id from 0 to"
            f" {decoder['vocab_size'] - 1}"
        )
    sinusoids = Sinusoids(decoder["d_model"], to_base=True)
    places = {"max_positions": None, "sinusoids": sinusoids, "offset": pad + 1, "unplaced": pad}
    return norm | places


def _is_projected(decoder: Mapping[str, Any], vision: VisionConfig) -> bool:
    """Whether the states of the encoder are projected to the decoder's width."""
    cross = decoder["cross_attention_hidden_size"]
    if cross is None:
        return vision.width != decoder["d_model"]
    if cross != vision.width:
        raise ValueError(
            f"decoder: cross_attention_hidden_size is {cross}; it must be hidden_size of the"
            f" encoder, {vision.width}, or null"
        )
    return False


def _decoder_to_hf(config: ImageToTextConfig) -> dict[str, Any]:
    fields = {field: getattr(config, name) for name, field in WORDS.items()}
    fields["is_decoder"] = True
    if config.max_positions is not None:
        fields["max_position_embeddings"] = config.max_positions
    if not config.post_norm:
        return fields | {"model_type": MBART, "is_encoder_decoder": False}
    if not config.projected:
        fields["cross_attention_hidden_size"] = config.vision.width
    return fields | {
        "model_type": TROCR,
        "use_learned_position_embeddings": config.sinusoids is None,
        "layernorm_embedding": config.embedding_norm,
    }
