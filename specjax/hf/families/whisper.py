"""Whisper checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import speech
from specjax.hf.families.bart import BartLike
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.generation import GENERATION, NEUTRAL, reading_generation
from specjax.hf.families.schema import only, raw, read, size
from specjax.models.whisper import Whisper, WhisperConfig
from specjax.models.with_input import check_has_encoder


@FAMILIES.register("whisper")
class WhisperFamily(BartLike[WhisperConfig]):
    """Whisper and Distil-Whisper: speech to text."""

    model, shape = Whisper, WhisperConfig
    architecture = "WhisperForConditionalGeneration"
    words: ClassVar[dict[str, str]] = BartLike.words | {
        "max_positions": "max_target_positions",
        "encoder_positions": "max_source_positions",
        "mels": "num_mel_bins",
    }
    # Hugging Face reads `scale_embedding` of a Whisper, and scales nothing.
    constants: ClassVar[dict[str, Any]] = {"key_bias": False, "scale_embedding": False}
    schema = BartLike.schema.without("max_position_embeddings").derive(
        "whisper",
        # SpecAugment masks in training only; the classifier and alignments are of other tasks.
        (
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
        ),
        num_mel_bins=size(80),
        max_source_positions=size(1500),
        max_target_positions=size(448),
        tie_word_embeddings=only(True),
        forced_decoder_ids=raw(None),
    )
    tensors: ClassVar[Tensors] = {
        **BartLike.tensors,
        "embedding": "model.decoder.embed_tokens.weight",
        **{
            f"encoder_entrance.{name}.{ours}": Stored(f"model.encoder.{name}.{theirs}", transposed)
            for name in ("conv1", "conv2")
            for ours, theirs, transposed in (("kernel", "weight", True), ("bias", "bias", False))
        },
    }
    generation = speech.FIELDS
    neutral = NEUTRAL | speech.NEUTRAL
    ignored = r"proj_out\.weight"  # the embedding, which some checkpoints store twice

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> WhisperConfig:
        checked = read(self.schema, hf, GENERATION)
        fields = hf if generation is None else generation
        with reading_generation(generation):
            tokens = speech.speech_tokens(fields, checked["vocab_size"])
        # Old checkpoints have these fields of `generation_config.json` only in `config.json`.
        own = any(fields.get(name) is not None for name in speech.FORCING)
        with reading_generation(generation if own else None):
            forced = speech.forced_tokens(hf, fields, tokens, checked["vocab_size"])
        return self.build(checked, hf, generation, dtype, forced=forced, speech=tokens)

    def config_to_hf(self, config: WhisperConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        check_has_encoder(config)
        fields, ends = super().config_to_hf(config)
        return fields, ends | speech.to_hf(config)
