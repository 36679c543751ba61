"""P-EAGLE drafters, own and published ones: EAGLE-3's layouts, with masks and further layers.

Masks are a token, and a vector in place of the target's states (docs/how_to/published_drafters.md
has the sources).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import speculators
from specjax.hf.families.causal import LAYER as PLAIN_LAYER
from specjax.hf.families.eagle import EagleLlama, EagleT5Family
from specjax.hf.families.eagle3 import Eagle3, Eagle3Speculators, PublishedEagle
from specjax.hf.families.eagle3_fields import MASKS, P_EAGLE, is_p_eagle
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.on_target import OnTargetFamily
from specjax.hf.families.published import get_object, read_nested
from specjax.hf.families.schema import (
    MOST_LAYERS,
    Schema,
    choice,
    flag,
    format_value,
    raw,
    size,
)
from specjax.models.base import LanguageModel
from specjax.models.p_eagle import PEagle, PEagleCausalConfig, PEagleT5Config

LAYERS = 4
"""Default layers of a drafter (published)."""

MASK = "mask_token_id"


def _check_mask(field: str, token: int | None, vocab_size: int) -> int:
    """The token that masks are.

    Raises:
      ValueError: when it has no embedding.
    """
    if token is None or token >= vocab_size:
        raise ValueError(
            f"{field} is {format_value(token)}; it must be an id from 0 to {vocab_size - 1}, whose"
            " embedding masks have"
        )
    return token


OWN_FIELD = {MASK: size(None, least=0)}
OWN_WORD = {"mask_token": MASK}
OWN_TENSORS: Tensors = {"mask": "mask_embedding", "mask_hidden": "mask_hidden"}


class _OwnMasks(OnTargetFamily):
    """Shared parts of this project's own layouts."""

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        if fields[MASK] is not None:
            _check_mask(MASK, fields[MASK], fields["vocab_size"])
        return super().from_fields(fields, hf)


@FAMILIES.register("p_eagle_t5")
class PEagleT5Family(_OwnMasks, EagleT5Family):
    """P-EAGLE drafters of targets with an encoder, with attention to its states."""

    model, shape = PEagle, PEagleT5Config
    schema = EagleT5Family.schema.derive(**OWN_FIELD)
    words: ClassVar[dict[str, str]] = EagleT5Family.words | OWN_WORD
    tensors: ClassVar[Tensors] = {**EagleT5Family.tensors, **OWN_TENSORS}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {
            "num_decoder_layers": min(LAYERS, target.info.depth)
        }


@FAMILIES.register("p_eagle_llama")
class PEagleLlama(_OwnMasks, EagleLlama):
    """P-EAGLE drafters of decoder-only targets with rotary positions."""

    model, shape = PEagle, PEagleCausalConfig
    schema = EagleLlama.schema.derive(**OWN_FIELD)
    words: ClassVar[dict[str, str]] = EagleLlama.words | OWN_WORD
    tensors: ClassVar[Tensors] = {**EagleLlama.tensors, **OWN_TENSORS}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        return super().get_target_fields(target) | {
            "num_hidden_layers": min(LAYERS, target.info.depth)
        }


class _PublishedMasks(PublishedEagle):
    """Shared parts of both published layouts."""

    model, shape = PEagle, PEagleCausalConfig

    def count_layers(self, layer: Mapping[str, Any]) -> int:
        return layer["num_hidden_layers"]

    def table(self, config: Any) -> Tensors:
        later = nest_modules("layers_{}", "layers.{}", PLAIN_LAYER)
        return {**super().table(config), **later, "mask_hidden": "mask_hidden"}


@FAMILIES.register("p_eagle")
class PublishedPEagle(_PublishedMasks, Eagle3):
    """P-EAGLE drafters of SpecForge, and those that vLLM reads as EAGLE-3 ones."""

    family = "p_eagle"
    block = "layers.0"
    schema = dataclasses.replace(
        Eagle3.schema,
        fields={
            **Eagle3.schema.fields,
            **{name: size(None, least=0) for name in MASKS},
            "dflash_config": raw(),
            "parallel_drafting": flag(None),
        },
    )

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        return is_p_eagle(hf)

    def rename_tensor(self, tensor: str) -> str:
        """The name in SpecForge's layout; SafeAILab's first layer is `midlayer`."""
        bare = tensor.removeprefix("model.")
        first = "midlayer."
        return f"layers.0.{bare.removeprefix(first)}" if bare.startswith(first) else bare

    def own_attributes(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The token of masks, which has several names.

        Raises:
          ValueError: when there is none, or two.
        """
        inside = Schema({MASK: size(None, least=0)})
        of_block = read_nested(inside, get_object(fields, "dflash_config"), "dflash_config")[MASK]
        found = {name: fields[name] for name in MASKS} | {"dflash_config": of_block}
        found = {name: token for name, token in found.items() if token is not None}
        if len(set(found.values())) > 1:
            words = " and ".join(f"{name} is {token}" for name, token in found.items())
            raise ValueError(f"{words}; they name the same token and must agree")
        field, token = next(iter(found.items()), (MASK, None))
        return {"mask_token": _check_mask(field, token, fields["vocab_size"])}

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, ends = super().config_to_hf(config)
        own = {"architectures": [P_EAGLE], MASK: config.mask_token}
        return words | own | {"ptd_token_id": config.mask_token}, ends


@FAMILIES.register("p_eagle_speculators")
class PEagleSpeculators(_PublishedMasks, Eagle3Speculators):
    """P-EAGLE drafters in the layout of vLLM's speculators."""

    family = "p_eagle_speculators"
    kind = "peagle"
    schema = dataclasses.replace(
        Eagle3Speculators.schema,
        fields={
            **Eagle3Speculators.schema.fields,
            speculators.TYPE: choice("peagle", ("peagle",)),
            MASK: size(None, least=0),
        },
    )
    layers: ClassVar[Mapping[str, Schema]] = {
        kind: dataclasses.replace(
            schema, fields={**schema.fields, "num_hidden_layers": size(most=MOST_LAYERS)}
        )
        for kind, schema in Eagle3Speculators.layers.items()
    }

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        return hf.get(speculators.TYPE) == "peagle"

    def own_attributes(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"mask_token": _check_mask(MASK, fields[MASK], fields["vocab_size"])}

    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words, ends = super().config_to_hf(config)
        own = {"architectures": ["PEagleSpeculator"], MASK: config.mask_token}
        return words | own | {"embed_requires_grad": True}, ends
