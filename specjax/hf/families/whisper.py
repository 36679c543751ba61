"""Whisper checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.core.registry import FAMILIES
from specjax.hf.families import speech
from specjax.hf.families.bart import BartLike
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Stored
from specjax.hf.families.generation import NEUTRAL, reading_generation
from specjax.hf.families.schema import only, raw, size
from specjax.models.bart import BartConfig
from specjax.models.base import Where
from specjax.models.whisper import ENCODER, Whisper, WhisperConfig

EMBEDDING = "model.decoder.embed_tokens.weight"
SHARED_EMBEDDING = ("embedding",)


@FAMILIES.register("whisper")
class WhisperFamily(BartLike[WhisperConfig]):
    """Whisper and Distil-Whisper: speech to text."""

    model = Whisper
    architecture = "WhisperForConditionalGeneration"
    parts: ClassVar[Mapping[str, Any]] = {"key_bias": False}
    schema = dataclasses.replace(
        BartLike.schema,
        fields={
            **{
                name: field
                for name, field in BartLike.schema.fields.items()
                if name != "max_position_embeddings"
            },
            "num_mel_bins": size(80),
            "max_source_positions": size(1500),
            "max_target_positions": size(448),
            "tie_word_embeddings": only(True),
            "forced_decoder_ids": raw(None),
        },
        aliases={**BartLike.schema.aliases, "num_key_value_heads": "encoder_attention_heads"},
        # SpecAugment masks in training only; the classifier and alignments are of other tasks.
        harmless={
            *BartLike.schema.harmless,
            "apply_spec_augment",
            "classifier_proj_size",
            "mask_feature_length",
            "mask_feature_min_masks",
            "mask_feature_prob",
            "mask_time_length",
            "mask_time_min_masks",
            "mask_time_prob",
            "median_filter_width",
            "use_weighted_layer_sum",
        },
        declared=declared_by("whisper"),
    )
    generation = speech.FIELDS
    neutral = NEUTRAL | speech.NEUTRAL
    ignored = r"proj_out\.weight"  # the embedding, which some checkpoints store twice

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {"max_positions": fields["max_target_positions"]}

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> WhisperConfig:
        shape = super().config_from_hf(hf, generation, dtype)
        fields = hf if generation is None else generation
        with reading_generation(generation):
            tokens = speech.speech_tokens(fields, shape.vocab_size)
        # Old checkpoints have these of `generation_config.json` in `config.json` alone.
        own = any(fields.get(name) is not None for name in speech.FORCING)
        with reading_generation(generation if own else None):
            forced = speech.forced_tokens(hf, fields, tokens, shape.vocab_size)
        parts = {field.name: getattr(shape, field.name) for field in dataclasses.fields(BartConfig)}
        # Hugging Face reads `scale_embedding` of a Whisper, and scales nothing.
        parts["scale_embedding"] = False
        return WhisperConfig(
            **parts,
            mels=hf.get("num_mel_bins", 80),
            encoder_positions=hf.get("max_source_positions", 1500),
            forced=forced,
            speech=tokens,
        )

    def config_to_hf(self, config: WhisperConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        if not config.own_encoder:
            raise ValueError("the model borrows its target's encoder; it cannot be saved without")
        shape, generation = super().config_to_hf(config)
        del shape["max_position_embeddings"]
        shape |= {
            "num_mel_bins": config.mels,
            "max_source_positions": config.encoder_positions,
            "max_target_positions": config.max_positions,
        }
        return shape, generation | speech.to_hf(config)

    def names(self, config: WhisperConfig) -> dict[Where, Stored]:
        stored = {
            where: tensor
            for where, tensor in super().names(config).items()
            if where[-2:] != ("k", "bias")
            and (config.own_encoder or not where[0].startswith(ENCODER))
        }
        stored["embedding",] = Stored(EMBEDDING)
        for name in ("conv1", "conv2") if config.own_encoder else ():
            tensor = f"model.encoder.{name}"
            stored["encoder_entrance", name, "kernel"] = Stored(f"{tensor}.weight", True)
            stored["encoder_entrance", name, "bias"] = Stored(f"{tensor}.bias")
        return stored
