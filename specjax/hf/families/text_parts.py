"""Text parts of models that also see: `text_config`, and tensors under the names of a part.

Without images they are decoders as other families are, by whose fields and tensors they are read:
the three positions of a token, which Qwen-VL rotates by, are then one. They are exported as models
of these families.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import Decoder
from specjax.hf.families.family import Family, Tensors
from specjax.hf.families.generation import GENERATION, TOKENS
from specjax.hf.families.layer_types import SWITCHED, WINDOWS
from specjax.hf.families.schema import (
    CAUSAL,
    COMMON,
    Schema,
    flag,
    format_value,
    ignore,
    part,
    raw,
    read,
    read_declared,
)
from specjax.models.causal import Causal, CausalConfig

VISION = "vision_config"


MROPE = {"mrope_section", "mrope_interleaved"}
"""Fields of a scaling: which waves turn by which of a token's three positions."""


def make_schema(model_type: str, images: Collection[str]) -> Schema:
    """The fields around a text part, of which those about `images` change no text."""
    fields = CAUSAL | {"text_config": raw(), "tie_word_embeddings": flag(True)}
    return Schema(fields, COMMON | {VISION, *images}, model_type)


class TextPart(Family[CausalConfig]):
    """A checkpoint whose text part is a decoder of another family."""

    model, shape = Causal, CausalConfig
    prefix = "model."
    parts: ClassVar[tuple[str, ...]] = ("language_model.model.", "model.language_model.")
    """How names of the text part's tensors begin, for `model.` of the decoder's."""

    families: ClassVar[dict[str, str]]
    """Types of text parts, the usual one first, and the family that each is of."""

    unsaid: ClassVar[dict[str, Any]] = {}
    """Fields of the text part that its class fills in, besides those that it declares."""

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        around, text = self.split(hf)
        read(self.schema, around, GENERATION)
        if VISION in around:
            ignore(VISION)
        with part("text_config"):
            return FAMILIES[text["model_type"]].cls().config_from_hf(text, generation, dtype)

    def split(self, hf: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields around the text part, and the text part's as its family reads them.

        Raises:
          ValueError: naming the field, its value and what is allowed.
        """
        text = hf.get("text_config")
        if not isinstance(text, dict):
            raise ValueError(f"text_config is {format_value(text)}; it must be an object")
        usual = next(iter(self.families))
        kind = text.get("model_type", usual)
        if kind not in self.families:
            raise ValueError(
                f"model_type of text_config is {format_value(kind)}; it must be one of"
                f" {', '.join(self.families)}"
            )
        family = FAMILIES[self.families[kind]].cls
        declared = read_declared(kind).defaults
        usual = {
            name: declared[name]
            for name in family.schema.fields
            if name not in CAUSAL and isinstance(declared.get(name), bool | int | float | str)
        }
        outside = {name: hf[name] for name in TOKENS if name in hf}
        outside["tie_word_embeddings"] = self.is_tied(hf, text)
        own = {"model_type": self.families[kind]}
        return dict(hf), {**usual, **self.unsaid, **self.translate(text), **outside, **own}

    def is_tied(self, hf: Mapping[str, Any], text: Mapping[str, Any]) -> Any:
        """Whether the output layer is the embedding."""
        declared = read_declared(str(self.schema.source)).defaults
        return hf.get("tie_word_embeddings", declared["tie_word_embeddings"])

    def translate(self, text: Mapping[str, Any]) -> dict[str, Any]:
        """The text part's fields as its family has them."""
        return dict(text)

    def rename_tensor(self, tensor: str) -> str:
        for part_of in self.parts:
            if tensor.startswith(part_of):
                return self.prefix + tensor.removeprefix(part_of)
        return tensor.removeprefix("language_model.")

    def export_base(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The fields of the text part, and those outside that are not about images."""
        around, text = self.split(hf)
        images = {*self.schema.fields, *self.schema.harmless} - COMMON
        return {name: value for name, value in around.items() if name not in images} | text

    def table(self, config: Any) -> Tensors:
        return FAMILIES[config.family].cls().table(config)


NO_WINDOWS = {*SWITCHED, "max_window_layers"}
"""Fields of a Qwen3 that the text part of Qwen3-VL has not."""

QWEN_IMAGES = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


@FAMILIES.register("qwen2_5_vl")
class Qwen25VL(TextPart):
    """The text part of Qwen2.5-VL, which is a Qwen2."""

    schema = make_schema("qwen2_5_vl", QWEN_IMAGES)
    families: ClassVar[dict[str, str]] = {"qwen2_5_vl_text": "qwen2"}
    unsaid: ClassVar[dict[str, Any]] = {"rope_theta": 1_000_000.0}
    ignored = rf"{Decoder.ignored}|(model\.)?visual\..*"

    def split(self, hf: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first files have the text part's fields among those around it."""
        if hf.get("text_config") is not None:
            return super().split(hf)
        declared = read_declared("qwen2_5_vl_text").defaults
        own = {*declared, "rope_parameters", "rope_scaling", "rope_theta"} - COMMON
        text = {name: value for name, value in hf.items() if name in own}
        around = {name: value for name, value in hf.items() if name not in own or name in TOKENS}
        return around, super().split({**around, "text_config": text})[1]

    def is_tied(self, hf: Mapping[str, Any], text: Mapping[str, Any]) -> Any:
        return super().is_tied(hf, text) or text.get("tie_word_embeddings", False)

    def translate(self, text: Mapping[str, Any]) -> dict[str, Any]:
        """With the three positions of a token for one."""
        made = dict(text)
        for name in ("rope_scaling", "rope_parameters"):
            made[name] = _rotate_by_one_position(text.get(name))
        return made


def _rotate_by_one_position(scaling: Any) -> Any:
    """A scaling without what says which waves turn by which of the three positions."""
    if not isinstance(scaling, dict):
        return scaling
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    one = {name: value for name, value in scaling.items() if name not in MROPE | {"type"}}
    return one | {"rope_type": "default" if kind == "mrope" else kind}


@FAMILIES.register("qwen3_vl")
class Qwen3VL(Qwen25VL):
    """The text part of Qwen3-VL, which is a Qwen3."""

    schema = make_schema("qwen3_vl", QWEN_IMAGES)
    families: ClassVar[dict[str, str]] = {"qwen3_vl_text": "qwen3"}
    unsaid: ClassVar[dict[str, Any]] = {"rope_theta": 500_000.0}

    def translate(self, text: Mapping[str, Any]) -> dict[str, Any]:
        """With the fields of windows left out, which this text part does not have."""
        for name in WINDOWS:
            if text.get(name) is not None:
                raise ValueError(f"{name} is {format_value(text[name])}; it must be null")
        made = super().translate(text)
        return {name: value for name, value in made.items() if name not in NO_WINDOWS}


@FAMILIES.register("qwen3_5")
class Qwen35(TextPart):
    """The text part of Qwen3.5, with its gated delta networks."""

    schema = make_schema("qwen3_5", QWEN_IMAGES)
    families: ClassVar[dict[str, str]] = {"qwen3_5_text": "qwen3_5_text"}
    ignored = rf"{Decoder.ignored}|mtp\..*|model\.visual\..*"


@FAMILIES.register("mistral3")
class Mistral3(TextPart):
    """The text part of Mistral Small 3.1 and 4, and of Ministral 3."""

    schema = make_schema(
        "mistral3",
        (
            "image_token_id",
            "image_token_index",
            "multimodal_projector_bias",
            "projector_hidden_act",
            "spatial_merge_size",
            "vision_feature_layer",
        ),
    )
    families: ClassVar[dict[str, str]] = {
        name: name for name in ("mistral", "ministral3", "mistral4")
    }
    ignored = rf"{Decoder.ignored}|(model\.)?(vision_tower|multi_modal_projector)\..*"
