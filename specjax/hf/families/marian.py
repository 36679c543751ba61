"""Marian checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.core.registry import FAMILIES
from specjax.hf.families.bart import STACKS, BartLike
from specjax.hf.families.family import Stored
from specjax.hf.families.schema import flag, size
from specjax.models.bart import BartConfig
from specjax.models.base import Where
from specjax.models.sinusoids import Sinusoids

SHARED = "share_encoder_decoder_embeddings"


@FAMILIES.register("marian")
class MarianFamily(BartLike[BartConfig]):
    """Marian, such as Helsinki-NLP/opus-mt-en-de, of one vocabulary or of two."""

    architecture = "MarianMTModel"
    schema = BartLike.schema.changed(
        "marian", ("is_decoder",), **{SHARED: flag(True), "decoder_vocab_size": size(None)}
    )
    parts: ClassVar[Mapping[str, Any]] = {
        "post_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }

    def vocabularies(self, fields: Mapping[str, Any]) -> dict[str, int]:
        """The decoder's, and the encoder's where their embeddings are not shared."""
        encoders = fields["vocab_size"]
        decoders = fields["decoder_vocab_size"] or encoders
        if not fields[SHARED]:
            return {"vocab_size": decoders, "source_vocab": encoders}
        if decoders != encoders:
            raise ValueError(
                f"decoder_vocab_size is {decoders}; it must be vocab_size, {encoders}, where"
                f" {SHARED} is true"
            )
        return {"vocab_size": encoders}

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "max_positions": fields["max_position_embeddings"],
            "sinusoids": Sinusoids(fields["d_model"]),
        }

    def config_to_hf(self, config: BartConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, generation = super().config_to_hf(config)
        own = {
            "vocab_size": config.source_vocab or config.vocab_size,
            "decoder_vocab_size": config.vocab_size,
            SHARED: config.source_vocab is None,
        }
        return shape | own, generation

    def repeated(
        self, config: BartConfig, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {} if config.source_vocab else super().repeated(config, tensors)

    def names(self, config: BartConfig) -> dict[Where, Stored]:
        stored = super().names(config)
        if config.source_vocab:
            tables = ("source_embedding", "embedding")
            for table, stack in zip(tables, STACKS, strict=True):
                stored[table,] = Stored(f"model.{stack}.embed_tokens.weight")
        return stored
