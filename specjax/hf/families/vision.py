"""Image-to-text checkpoints (TrOCR): an encoder and a decoder with configurations of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.bart import BEFORE_POSITIONS, decoder_modules
from specjax.hf.families.family import Family, Stored, Tensors, nest_modules
from specjax.hf.families.generation import GENERATION, TOKENS, refuse_decoder_settings
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
    number,
    only,
    rate,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.info import Patches
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Sinusoids
from specjax.models.vision import ImageToText, ImageToTextConfig, VisionConfig
from specjax.models.with_input import check_has_encoder

ENCODER = Schema(
    SHARED
    | {
        "hidden_size": size(),
        "intermediate_size": size(),
        "num_hidden_layers": size(most=MOST_LAYERS),
        "num_attention_heads": size(),
        "hidden_act": choice("gelu", ACTIVATIONS),
        "hidden_dropout_prob": rate(0.0),
        "layer_norm_eps": number(1e-12),
        "image_size": raw(224),
        "patch_size": raw(16),
        "num_channels": size(3),
        "qkv_bias": flag(True),
    },
    COMMON
    | {
        "attention_probs_dropout_prob",
        "encoder_stride",
        "initializer_range",
        "is_encoder_decoder",
        "pooler_act",
        "pooler_output_size",
        "tie_word_embeddings",
    },
)
"""Fields of ViT and DeiT; the pooled state is not read."""

ENCODERS = {"vit": ENCODER.derive("vit"), "deit": ENCODER.derive("deit")}
DISTILLED = "deit"

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
        "use_learned_position_embeddings": flag(True),
        "layernorm_embedding": flag(True),
        "tie_word_embeddings": flag(True),
        "cross_attention_hidden_size": size(None),
    },
    COMMON
    | {
        "add_cross_attention",
        "attention_dropout",
        "classifier_dropout",
        "decoder_layerdrop",
        "init_std",
        "is_decoder",
        "is_encoder_decoder",
    },
    "trocr",
)
"""Fields of TrOCR's decoder, BART's without an encoder."""

ENCODER_WORDS = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
    "qkv_bias": "qkv_bias",
}
DECODER_WORDS = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "d_ff": "decoder_ffn_dim",
    "num_heads": "decoder_attention_heads",
    "num_decoder_layers": "decoder_layers",
    "activation": "activation_function",
    "scale_embedding": "scale_embedding",
    "embedding_norm": "layernorm_embedding",
    "tied": "tie_word_embeddings",
    "dropout": "dropout",
    "ff_dropout": "activation_dropout",
}
"""Attributes of a side's shape, and the fields that hold them as they are."""

LAYER: Tensors = {
    "self_norm": "layernorm_before",
    **{
        f"self_attention.{name[0]}": f"attention.attention.{name}"
        for name in ("query", "key", "value")
    },
    "self_attention.o": "attention.output.dense",
    "ff_norm": "layernorm_after",
    "ff.up": "intermediate.dense",
    "ff.down": "output.dense",
}
"""Modules of a layer of ViT."""


@FAMILIES.register("vision-encoder-decoder")
class VisionEncoderDecoder(Family[ImageToTextConfig]):
    """TrOCR: ViT or DeiT before BART's decoder."""

    model, shape = ImageToText, ImageToTextConfig
    architecture = "VisionEncoderDecoderModel"
    schema = Schema(
        SHARED | {"encoder": raw(NEEDED), "decoder": raw(NEEDED), "is_encoder_decoder": only(True)},
        COMMON | {"tie_word_embeddings"},
        "vision-encoder-decoder",
    )
    constants: ClassVar[dict[str, Any]] = {"post_norm": True, "final_norm": False}
    tensors: ClassVar[Tensors] = {
        **nest_modules("encoder_{}", "encoder.encoder.layer.{}", LAYER),
        "encoder_entrance.kernel": Stored(
            "encoder.embeddings.patch_embeddings.projection.weight", transposed=True
        ),
        "encoder_entrance.bias": "encoder.embeddings.patch_embeddings.projection.bias",
        "encoder_entrance.class_token": "encoder.embeddings.cls_token",
        "encoder_entrance.distillation_token": "encoder.embeddings.distillation_token",
        "encoder_entrance.position_embedding": "encoder.embeddings.position_embeddings",
        "encoder_norm": "encoder.layernorm",
        "encoder_projection": "enc_to_dec_proj",
        "embedding": "decoder.model.decoder.embed_tokens.weight",
        "head": "decoder.output_projection",
        **decoder_modules("decoder.model.decoder"),
    }
    output = "decoder.output_projection.weight"
    ignored = (
        r"encoder\.pooler\..*|encoder\.embeddings\.mask_token"
        r"|decoder\.model\.decoder\.(version|embed_positions\.(weights|_float_tensor))"
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> ImageToTextConfig:
        checked = read(self.schema, hf, GENERATION)
        vision = read_object(hf, "encoder", _read_encoder)
        decoder = read_object(hf, "decoder", _read_decoder)
        if generation is None:
            refuse_decoder_settings(hf["decoder"])
        # Hugging Face takes missing generation settings from the decoder's.
        tokens = {name: hf["decoder"][name] for name in TOKENS if name in hf["decoder"]}
        attributes = {name: decoder[field] for name, field in DECODER_WORDS.items()}
        attributes |= _place(decoder, hf["decoder"].get("pad_token_id", 1))
        attributes |= {
            "vision": vision,
            "encoder_ff": vision.encoder_ff,
            "encoder_heads": vision.encoder_heads,
            "num_layers": vision.num_layers,
            "projected": _is_projected(decoder, vision),
        }
        return self.build(checked, tokens | hf, generation, dtype, **attributes)

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        ends = self.ends(config)
        return {
            "encoder": _encoder_to_hf(config.vision),
            "decoder": _decoder_to_hf(config) | ends,
            "tie_word_embeddings": False,  # each side ties its own
        }


def _read_encoder(written: dict[str, Any]) -> VisionConfig:
    family = written.get("model_type")
    if family not in ENCODERS:
        raise ValueError(
            f"model_type is {format_value(family)}; it must be one of {', '.join(ENCODERS)}"
        )
    fields = read(ENCODERS[family], written, GENERATION)
    distilled = family == DISTILLED
    return VisionConfig(
        family=family,
        patches=_patches(fields, 1 + distilled),
        distilled=distilled,
        **{name: fields[field] for name, field in ENCODER_WORDS.items()},
    )


def _patches(fields: Mapping[str, Any], added: int) -> Patches:
    """The grid of an image, with `added` states before those of patches."""
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
    return Patches(rows, columns, tall, wide, fields["num_channels"], rows * columns + added)


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


MOST_PIXELS = 1 << 14


def _read_decoder(written: dict[str, Any]) -> dict[str, Any]:
    family = written.get("model_type")
    if family != "trocr":
        raise ValueError(f"model_type is {format_value(family)}; it must be 'trocr'")
    return read(DECODER, written, GENERATION)


def _place(decoder: Mapping[str, Any], pad: Any) -> dict[str, Any]:
    """Attributes of the decoder's positions: learned, or sinusoids of any number."""
    if decoder["use_learned_position_embeddings"]:
        return {"max_positions": decoder["max_position_embeddings"], "offset": BEFORE_POSITIONS}
    if not is_int(pad) or not 0 <= pad < decoder["vocab_size"]:
        raise ValueError(
            f"pad_token_id is {format_value(pad)}; positions need a token id from 0 to"
            f" {decoder['vocab_size'] - 1}"
        )
    sinusoids = Sinusoids(decoder["d_model"], to_base=True)
    return {"max_positions": None, "sinusoids": sinusoids, "offset": pad + 1, "unplaced": pad}


def _is_projected(decoder: Mapping[str, Any], vision: VisionConfig) -> bool:
    """Whether the states of the encoder are projected to the decoder's width."""
    cross = decoder["cross_attention_hidden_size"]
    if cross is None:
        return vision.d_model != decoder["d_model"]
    if cross != vision.d_model:
        raise ValueError(
            f"decoder: cross_attention_hidden_size is {cross}; it must be hidden_size of the"
            f" encoder, {vision.d_model}, or null"
        )
    return False


def _encoder_to_hf(vision: VisionConfig) -> dict[str, Any]:
    grid = vision.patches
    return {
        "model_type": vision.family,
        **{field: getattr(vision, name) for name, field in ENCODER_WORDS.items()},
        "image_size": list(grid.size),
        "patch_size": [grid.height, grid.breadth],
        "num_channels": grid.channels,
    }


def _decoder_to_hf(config: ImageToTextConfig) -> dict[str, Any]:
    fields = {field: getattr(config, name) for name, field in DECODER_WORDS.items()}
    own = {} if config.projected else {"cross_attention_hidden_size": config.vision.d_model}
    if config.max_positions is not None:
        own["max_position_embeddings"] = config.max_positions
    return {
        "model_type": "trocr",
        **fields,
        "use_learned_position_embeddings": config.sinusoids is None,
        "is_decoder": True,
        "add_cross_attention": True,
        **own,
    }
