"""T5Gemma 2 checkpoints in Hugging Face's format; only their text parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary, t5gemma
from specjax.hf.families.family import Tensors
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import (
    COMMON,
    NEEDED,
    SHARED,
    Schema,
    only,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.t5gemma import Stack
from specjax.models.t5gemma2 import T5Gemma2, T5Gemma2Config

STACK = t5gemma.STACK.derive(
    "t5gemma2_decoder",
    **rotary.TWO_KINDS,
    max_position_embeddings=size(131_072),
    query_pre_attn_scalar=size(256),
    sliding_window=size(4096),  # transformers makes a mask with it, also where no layer does
    sliding_window_pattern=size(6),
    # Hugging Face's classes have the field and do nothing with it.
    attn_logit_softcapping=only(None),
)
STACK = dataclasses.replace(
    STACK, harmless={*STACK.harmless} - {"cross_attention_hidden_size", "is_decoder"}
)
"""Fields of the decoder, and of the encoder's `text_config`: those of Gemma 3."""

IMAGES = frozenset({"image_token_id", "image_token_index"})
"""Placeholder tokens of images; without an image they are ordinary tokens."""

ENCODER = Schema(
    SHARED | {"text_config": raw(NEEDED), "eoi_token_index": size(256_000, least=0)},
    COMMON
    | IMAGES
    | {
        "boi_token_id",
        "boi_token_index",
        "initializer_range",
        "is_encoder_decoder",
        "mm_tokens_per_image",
        "tie_word_embeddings",
        "vision_config",
    },
    "t5gemma2_encoder",
)

NO_EYES = {
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1,
        "intermediate_size": 1,
        "num_hidden_layers": 0,
        "num_attention_heads": 1,
        "image_size": 1,
        "patch_size": 1,
        "vision_use_head": False,
    },
    "mm_tokens_per_image": 1,
}
"""The smallest image encoder that transformers builds: it has no text-only class."""


@FAMILIES.register("t5gemma2")
class T5Gemma2Family(t5gemma.T5GemmaLike[T5Gemma2Config]):
    """T5Gemma 2, its text part: Gemma 3 blocks, one attention to own and to the encoder's keys."""

    model, shape = T5Gemma2, T5Gemma2Config
    # Hugging Face overwrites the token after an image by the encoder's.
    schema = t5gemma.T5GemmaLike.schema.derive(
        "t5gemma2", (*IMAGES, "eoi_token_id", "eoi_token_index")
    )
    # Images, and second copies of what both sides share.
    ignored = (
        r"model\.(encoder\.(vision_tower|multi_modal_projector)\..*"
        r"|decoder\.embed_tokens\.(weight|eoi_embedding))"
    )
    architecture = "T5Gemma2ForConditionalGeneration"
    shared: ClassVar[dict[str, str]] = {
        "embedding": "model.encoder.embed_tokens.weight",
        "image_end": "model.encoder.embed_tokens.eoi_embedding",
    }
    tensors: ClassVar[Tensors] = {**t5gemma.T5GemmaLike.tensors, **shared}

    def rename_tensor(self, tensor: str) -> str:
        """Maps names: transformers 5 names the encoder's text model differently in memory."""
        return tensor.replace("encoder.text_model.", "encoder.")

    def stack(self, written: dict[str, Any]) -> tuple[dict[str, Any], Stack]:
        fields = read(STACK, written, GENERATION)
        fields = rotary.split_rope_kinds(fields, fields["rope_local_base_freq"])
        sliding = rotary.sliding_from_hf(fields, fields["head_dim"])
        every = fields["sliding_window_pattern"]
        return fields, t5gemma.stack_from_hf(fields, every, sliding_rope=sliding)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> T5Gemma2Config:
        encoder = read_object(hf, "encoder", lambda written: read(ENCODER, written, GENERATION))
        text = hf | {"encoder": encoder["text_config"]}
        config = super().config_from_hf(text, generation, dtype)
        return dataclasses.replace(config, image_end=encoder["eoi_token_index"])

    def export_base(self, hf: dict[str, Any]) -> dict[str, Any]:
        return hf | {"encoder": hf["encoder"] | NO_EYES}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = super().to_fields(config)
        for side, name in (("encoder", "t5gemma2_text"), ("decoder", "t5gemma2_decoder")):
            base = getattr(config, side).sliding_rope.theta
            fields[side] |= {"model_type": name, "rope_local_base_freq": base}
        fields["encoder"] = NO_EYES | {
            "model_type": "t5gemma2_encoder",
            "text_config": fields["encoder"],
            "eoi_token_index": config.image_end,
        }
        return fields | {"eoi_token_index": config.image_end}

    def repeat_tensors(
        self, config: T5Gemma2Config, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Repeats shared tensors for each side, because Hugging Face ties nothing."""
        if config.tied:
            return {}
        names = self.shared.values()
        return {name.replace("encoder", "decoder"): tensors[name] for name in names}
