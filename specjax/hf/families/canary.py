"""Canary checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import conformer
from specjax.hf.families.conformer import HEADS, KEY_HEADS, LAYERS
from specjax.hf.families.family import Family, Stored, Tensors
from specjax.hf.families.generation import GENERATION, TOKENS, read_decoder_tokens
from specjax.hf.families.moonshine import DECODER_LAYER, nest_layers
from specjax.hf.families.schema import (
    COMMON,
    NEEDED,
    SHARED,
    Schema,
    choice,
    flag,
    head_width,
    only,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.canary import Canary, CanaryConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Sinusoids
from specjax.models.with_input import check_has_encoder

DECODER = Schema(
    conformer.STACK
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
"""Fields of the decoder."""

START = {"decoder_start_token_id": 7}
SPECIAL = {"bos_token_id": 4, "eos_token_id": 3, "pad_token_id": 2}
"""Default special tokens; those of the decoder count where the whole model's are null."""

DECODER_WORDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_heads": HEADS,
    "d_head": "head_dim",
    "num_decoder_layers": LAYERS,
    "activation": "hidden_act",
    "max_positions": "max_position_embeddings",
    "key_bias": "attention_bias",
    "query_value_bias": "attention_bias",
    "output_bias": "attention_bias",
}
"""Attributes of the shape, and the fields of the decoder that hold them as they are."""


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
        **conformer.make_tensors("model.encoder"),
        **nest_layers("decoder", DECODER_LAYER),
    }
    prefix = "model."
    output = "proj_out.weight"
    ignored = r".*(num_batches_tracked|inv_freq|positional_embedding)"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CanaryConfig:
        fields = read(self.schema, hf, GENERATION)
        encoder, layers = read_object(hf, "encoder_config", conformer.read_conformer)
        decoder = read_object(hf, "decoder_config", _read_decoder)
        width = decoder["hidden_size"]
        for name, expected, others in (
            ("vocab_size", fields["vocab_size"], "the whole model"),
            ("hidden_size", encoder.d_model, "encoder_config"),
        ):
            if decoder[name] != expected:
                raise ValueError(
                    f"decoder_config: {name} is {decoder[name]}; it must be that of {others},"
                    f" {expected}"
                )
        tokens = read_decoder_tokens(hf["decoder_config"], generation, "decoder_config")
        given = {name: hf[name] for name in TOKENS if hf.get(name) is not None}
        nulls = {name: token for name, token in tokens.items() if name in hf}
        return self.build(
            fields,
            START | hf | SPECIAL | nulls | given,
            generation,
            dtype,
            **{name: decoder[field] for name, field in DECODER_WORDS.items()},
            sinusoids=Sinusoids(width, scale=width**-0.5),
            num_layers=layers,
            encoder_ff=encoder.d_ff,
            encoder_heads=encoder.num_heads,
            conformer=encoder,
        )

    def to_fields(self, config: Any) -> dict[str, Any]:
        check_has_encoder(config)
        decoder = {field: getattr(config, name) for name, field in DECODER_WORDS.items()}
        own = {"model_type": DECODER.source, KEY_HEADS: config.num_heads}
        return {
            "encoder_config": conformer.conformer_to_fields(config.conformer, config.num_layers),
            "decoder_config": own | decoder,
        }

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Steps of batch norms, which transformers' model reports where they are missing."""
        steps = (f"model.encoder.{conformer.STEPS}".format(n) for n in range(config.num_layers))
        return {name: np.zeros((), np.int64) for name in steps}


def _read_decoder(written: dict[str, Any]) -> dict[str, Any]:
    fields = conformer.read_stack(DECODER, written)
    head_width(fields)  # transformers' class has no others, of whatever width heads are
    return fields
