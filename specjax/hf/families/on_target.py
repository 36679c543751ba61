"""Fields about the target that all families of feature drafters share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Family, Stored, Tensors
from specjax.hf.families.llama import Llama
from specjax.hf.families.schema import NEEDED, Field, Schema, is_int, size
from specjax.hf.families.t5 import T5Family
from specjax.models.base import LanguageModel
from specjax.models.encoder_decoder import EncoderDecoder
from specjax.models.t5 import T5Config


def _layers() -> Field:
    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and bool(value) and all(map(_is_layer, value))

    return Field(NEEDED, "a list of layers of the target, counted from 1", fits)


def _is_layer(value: Any) -> bool:
    return is_int(value) and value >= 1


FIELDS = {
    "target_hidden_size": size(),
    "target_layers": _layers(),
    "target_cross_layer": size(0, least=0),
    "target_num_heads": size(0, least=0),
    "target_head_dim": size(0, least=0),
    "draft_vocab_size": size(),
}
"""Fields of a feature drafter's shape about its target."""


WORDS = {
    "target_width": "target_hidden_size",
    "draft_vocab": "draft_vocab_size",
    "cross": "target_cross_layer",
    "cross_heads": "target_num_heads",
    "cross_width": "target_head_dim",
}
"""Attributes of a drafter's shape on its target, and the fields that hold them as they are."""

TENSORS: Tensors = {
    "embedding": "embed_tokens.weight",
    "ids": Stored("draft_ids", integer=True),
    "fuse": "fc",
    "final_norm": "norm",
    "head": "lm_head",
    "position_bias": "relative_attention_bias",
}
"""Modules of all feature drafters; `cross` layers share one table of relative positions."""


class OnTargetFamily(Family[Any]):
    """Base of all feature drafters; the other base class handles the shape of the layers."""

    schema = Schema(FIELDS)
    prefix = ""
    ignored = r"$^"
    layers: ClassVar[type[Family]]
    """The family of models with such layers."""

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        if fields["draft_vocab_size"] > fields["vocab_size"]:
            raise ValueError(
                f"draft_vocab_size is {fields['draft_vocab_size']}; it must be at most vocab_size,"
                f" {fields['vocab_size']}"
            )
        return attributes | {"tied": False, "features": tuple(fields["target_layers"])}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {
            "architectures": [f"Specjax{self.model.__name__}"],
            "tie_word_embeddings": False,
            "target_layers": list(config.features),
        }

    def layers_read(self, depth: int) -> list[int]:
        """Default target layers that a drafter reads, for a target of `depth` layers."""
        raise NotImplementedError

    def of_target(self, target: LanguageModel) -> Any:
        """The fields of layers that suit a target."""
        return target.config

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        words, _ = self.layers().config_to_hf(self.of_target(target))
        return words | {
            "target_hidden_size": target.config.d_model,
            "target_layers": self.layers_read(target.info.depth),
            "draft_vocab_size": target.info.vocab_size,
        }


class OnT5(OnTargetFamily):
    """Fields of a drafter for targets with an encoder, with T5 layers for any target."""

    layers = T5Family

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        for name in ("target_cross_layer", "target_num_heads", "target_head_dim"):
            if not fields[name]:
                raise ValueError(
                    f"{name} is {fields[name]!r}; it must be at least 1 for a drafter that attends"
                    " to the encoder states of its target"
                )
        return super().from_fields(fields, hf) | {"num_layers": 0}  # it has no encoder of its own

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {"num_layers": 1}

    def of_target(self, target: LanguageModel) -> T5Config:
        return like_t5(_with_encoder(FAMILIES.get_name(type(self)), target))

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        heads, width = _with_encoder(FAMILIES.get_name(type(self)), target).cross_heads
        return super().get_target_fields(target) | {
            "target_cross_layer": target.info.depth,
            "target_num_heads": heads,
            "target_head_dim": width,
            "num_layers": 1,
        }


def _with_encoder(family: str, target: LanguageModel) -> EncoderDecoder:
    """The target, which must have an encoder for a drafter of a family.

    Raises:
      ValueError: naming the family.
    """
    if not isinstance(target, EncoderDecoder):
        raise ValueError(
            f"model_type is {family!r}; it must be {family.replace('t5', 'llama')!r} for a"
            " decoder-only target"
        )
    return target


def like_t5(target: EncoderDecoder) -> T5Config:
    """The shape of T5 layers as large as a target's decoder layers; a T5's own."""
    config, layers = target.config, target.decoder_shape
    if isinstance(config, T5Config):
        return config
    return T5Config(
        family="t5",
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        d_kv=target.cross_heads[1],
        d_ff=layers.d_ff,
        num_heads=layers.num_heads,
        num_layers=1,
        num_decoder_layers=1,
        activation=layers.activation,
        gated=layers.gated,
        start_token=config.start_token,
        eos=config.eos,
        pad=config.pad,
    )


class OnLlama(OnTargetFamily):
    """Fields of a drafter for decoder-only targets with rotary positions."""

    layers = Llama

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        if cross := fields["target_cross_layer"]:
            raise ValueError(
                f"target_cross_layer is {cross}; it must be 0 for a drafter of decoder-only targets"
            )
        return super().from_fields(fields, hf)

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        refuse_other_positions(FAMILIES.get_name(type(self)), target)
        # Serving engines read no biases; a drafter only has them if its own shape sets them.
        words = super().get_target_fields(target) | {"attention_bias": False, "mlp_bias": False}
        if latent := target.config.latent:
            # Llama's layers have keys of each head, which the target expands from latent vectors.
            words["head_dim"] = latent.plain + latent.rotated
            words["num_key_value_heads"] = target.config.num_heads
        return words


def refuse_other_positions(family: str, target: LanguageModel) -> None:
    """Refuses targets with an encoder, or without rotary positions, for a drafter of a family.

    Raises:
      ValueError: naming both.
    """
    theirs = target.config.family
    if target.info.start_token is not None:
        raise ValueError(
            f"model_type is {family!r}, for decoder-only targets; the target, of family"
            f" {theirs!r}, has an encoder"
        )
    if getattr(target.config, "rope", None) is None:
        raise ValueError(
            f"model_type is {family!r}, whose positions are rotary; the target, of family"
            f" {theirs!r}, has others"
        )
