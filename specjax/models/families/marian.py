"""Marian checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.core.registry import FAMILIES
from specjax.models.bart import BartConfig
from specjax.models.families.bart import BartLike
from specjax.models.families.schema import only, size
from specjax.models.sinusoids import Sinusoids

ONE_VOCABULARY = "encoder and decoder share one vocabulary here"


@FAMILIES.register("marian")
class MarianFamily(BartLike):
    """Marian, such as Helsinki-NLP/opus-mt-en-de."""

    architecture = "MarianMTModel"
    schema = BartLike.schema.changed(
        "marian",
        ("is_decoder",),
        share_encoder_decoder_embeddings=only(True, ONE_VOCABULARY),
        decoder_vocab_size=size(None),
    )
    parts: ClassVar[Mapping[str, Any]] = {
        "post_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        decoders, vocab = fields["decoder_vocab_size"], fields["vocab_size"]
        if decoders not in (None, vocab):
            raise ValueError(
                f"decoder_vocab_size is {decoders}; it must be vocab_size, {vocab}:"
                f" {ONE_VOCABULARY}"
            )
        return {
            "max_positions": fields["max_position_embeddings"],
            "sinusoids": Sinusoids(fields["d_model"]),
        }

    def config_to_hf(self, config: BartConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, generation = super().config_to_hf(config)
        shared = {"share_encoder_decoder_embeddings": True, "decoder_vocab_size": config.vocab_size}
        return shape | shared, generation
