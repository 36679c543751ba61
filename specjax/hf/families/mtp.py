"""Heads for multi-token prediction (MTP): a checkpoint of their own, or a part of their target's.

The layout of vLLM's speculators has the head alone, with the target's `config.json` in
`transformer_layer_config`. In a target's own checkpoint the same tensors have other names: those of
DeepSeek-V3 and GLM-4 (`model.layers.N`, N the number of layers), of Qwen3-Next and Qwen3.5 (`mtp`)
and of MiMo (`model.mtp_layers`). `folder#mtp` names such a head (`hf.huggingface.load`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import speculators
from specjax.hf.families.eagle3_fields import equal
from specjax.hf.families.family import Family, Stored, Tensors, get_family, nest_modules
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import (
    COMMON,
    NEEDED,
    NOTHING,
    Field,
    Schema,
    choice,
    flag,
    format_value,
    part,
    raw,
    read,
)
from specjax.hf.families.text_parts import TextPart
from specjax.models.base import LanguageModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.eagle import Eagle, EagleCausalConfig
from specjax.models.mtp import get_layer_shape

BLOCK = "mtp_layers.0"
"""Of the head's tensors."""

JOINED = f"{BLOCK}.input_proj.weight"
"""A tensor that every head has."""

USUAL_CLASS = "qwen2"
"""Class of a layer whose configuration does not name one."""

SPECULATED = 3
"""Draft length that an export proposes: FastMTP trains three steps."""

MODULES: dict[str, str | Stored] = {
    "layer.join": f"{BLOCK}.input_proj",
    "layer.embedding_norm": f"{BLOCK}.token_layernorm",
    "layer.state_norm": f"{BLOCK}.hidden_layernorm",
    "final_norm": f"{BLOCK}.final_layernorm",
}

OTHER_NAMES = {
    "fc": "input_proj",
    "eh_proj": "input_proj",
    "enorm": "token_layernorm",
    "pre_fc_norm_embedding": "token_layernorm",
    "hnorm": "hidden_layernorm",
    "pre_fc_norm_hidden": "hidden_layernorm",
    "norm": "final_layernorm",
    "shared_head.norm": "final_layernorm",
    "pre_mlp_layernorm": "post_attention_layernorm",
}
"""Names of modules in targets' checkpoints."""

COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
"""Fields of targets with the number of their heads."""

OWN_EMBEDDINGS = "mtp_use_dedicated_embeddings"
"""Field of targets whose heads have embeddings of their own."""

STATES_FIRST = ("mimo",)
"""Targets whose heads join state and embedding in this order, which no field says."""

OF_TARGET = "target."
"""Prefix of tensors of a target's checkpoint that are not the head's."""


@FAMILIES.register("mtp")
class Mtp(Family[EagleCausalConfig]):
    """A head in the layout of vLLM's speculators."""

    model, shape = Eagle, EagleCausalConfig
    ignored = r"(.*\.)?rotary_emb\.inv_freq|embed_tokens\.weight|lm_head\.weight"
    schema = Schema(
        {
            speculators.TYPE: choice("mtp", ("mtp",)),
            "speculators_config": raw(),
            speculators.LAYER: Field(
                NEEDED, "the target's configuration", lambda value: isinstance(value, dict)
            ),
            "num_nextn_predict_layers": equal(1, "one head drafts all tokens"),
            "mtp_hidden_states_first": flag(False),
        },
        COMMON | speculators.HARMLESS,
        NOTHING,
    )

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        return hf.get(speculators.TYPE) == "mtp"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleCausalConfig:
        fields = read(self.schema, hf, GENERATION)
        with part(speculators.LAYER):
            shape = make_head_shape({"model_type": USUAL_CLASS, **fields[speculators.LAYER]}, dtype)
        first = fields["mtp_hidden_states_first"]
        name = speculators.read_target_name(fields["speculators_config"])
        return dataclasses.replace(shape, states_first=first, target_name=name)

    def of_stored(self, config: EagleCausalConfig, tensors: Collection[str]) -> EagleCausalConfig:
        if JOINED not in tensors:
            raise ValueError("it has no head for multi-token prediction (MTP)")
        return config

    def table(self, config: EagleCausalConfig) -> Tensors:
        ours, theirs = "layers_{}.", "model.layers.{}."
        layer: dict[str, str | Stored] = {}
        for name, entry in FAMILIES[config.layer_family].cls().table(config).items():
            if name.startswith(ours):
                layer[name.removeprefix(ours)] = _without(theirs, entry)
        return MODULES | nest_modules("layer.block", BLOCK, layer)

    def config_to_hf(self, config: EagleCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        target, ends = _target_shape(config), self.ends(config)
        words, _ = FAMILIES[config.layer_family].cls().config_to_hf(target)
        fields = {
            "architectures": ["MTPDraftModel"],
            speculators.TYPE: "mtp",
            "num_nextn_predict_layers": 1,
            "mtp_hidden_states_first": config.states_first,
            speculators.LAYER: words,
            "speculators_config": speculators.describe_proposal(
                "mtp", SPECULATED, config.target_name
            ),
        }
        return fields | ends, ends

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        words, _ = get_family(target).config_to_hf(target.config)
        return {speculators.TYPE: "mtp", speculators.LAYER: words}


class MtpOfTarget(Mtp):
    """A head inside of the checkpoint of its target, whose `config.json` is read."""

    ignored = rf"{re.escape(OF_TARGET)}.*"

    def __init__(self, layers: int = 0) -> None:
        self._blocks = re.compile(
            rf"(?:model\.layers\.{layers}|mtp\.layers\.0|model\.mtp_layers\.0"
            r"|model\.mtp\.layers\.0|mtp)\.(.*)"
        )

    @classmethod
    def of(cls, hf: Mapping[str, Any]) -> MtpOfTarget:
        """The family of the head in a checkpoint with this `config.json`."""
        return cls(_find_decoder(hf).get("num_hidden_layers", 0))

    def rename_tensor(self, tensor: str) -> str:
        """The name in the layout of speculators, and of the target's own tensors one apart."""
        found = self._blocks.fullmatch(tensor)
        if found is None or found[1].startswith(("embed_tokens.", "shared_head.head.")):
            return f"{OF_TARGET}{tensor}"
        module, _, kind = found[1].rpartition(".")
        return f"{BLOCK}.{OTHER_NAMES.get(module, module)}.{kind}"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleCausalConfig:
        words = _find_decoder(hf)
        for name in COUNTS:
            if words.get(name) not in (None, 1):
                raise ValueError(
                    f"{name} is {format_value(words[name])}; it must be 1: one head drafts all"
                    " tokens"
                )
        if words.get(OWN_EMBEDDINGS):
            raise ValueError(
                f"{OWN_EMBEDDINGS} is {format_value(words[OWN_EMBEDDINGS])}; it must be false: a"
                " head reads the target's embeddings"
            )
        shape = make_head_shape(words, dtype)
        return dataclasses.replace(shape, states_first=shape.layer_family in STATES_FIRST)

    def export_base(self, hf: dict[str, Any]) -> dict[str, Any]:
        return {}  # an export has the layout of speculators


def find_head_tensors(tensors: Collection[str]) -> set[str]:
    """Those of a target's checkpoint that are its heads'."""
    joined = (re.fullmatch(r"(model\.layers\.\d+\.)eh_proj\.weight", name) for name in tensors)
    blocks = ("mtp.", "model.mtp.", "model.mtp_layers.", *(found[1] for found in joined if found))
    return {name for name in tensors if name.startswith(blocks)}


def make_head_shape(words: Mapping[str, Any], dtype: Any) -> EagleCausalConfig:
    """The shape of a head for a target with these fields of `config.json`.

    Fields that are missing have the defaults of the target's class, sizes too.

    Raises:
      ValueError: when heads of such targets are not supported.
    """
    name: Any = words.get("model_type")
    if name not in FAMILIES or FAMILIES[name].cls.model is not Causal:
        kinds = [name for name, entry in FAMILIES.items() if entry.cls.model is Causal]
        raise ValueError(
            f"model_type is {format_value(name)}; the target of a head must be one of"
            f" {', '.join(kinds)}"
        )
    family = FAMILIES[name].cls()
    target = family.config_from_hf(speculators.add_sizes(family.schema, words), None, dtype)
    return EagleCausalConfig(
        **get_layer_shape(target)
        | {"family": "mtp", "eos": (), "bos": None},
        layer_family=name,
        target_width=target.d_model,
        features=(target.num_layers,),
        draft_vocab=target.vocab_size,
        embedded=False,
        headed=False,
        logit_limit=target.logit_cap,
        reads_first=False,
        normed=True,
        normed_states=True,
        joined=True,
    )  # fmt: skip


def _find_decoder(hf: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a target, or of its text part where it also sees."""
    entry = FAMILIES.get(str(hf.get("model_type")))
    return entry.cls().split(hf)[1] if entry and issubclass(entry.cls, TextPart) else hf


def _target_shape(config: EagleCausalConfig) -> CausalConfig:
    """The shape of a target whose layers are all like the head's."""
    names = [field.name for field in dataclasses.fields(CausalConfig)]
    fields = {name: getattr(config, name) for name in names}
    depth = config.features[0]
    return CausalConfig(
        **fields
        | {
            "family": config.layer_family,
            "num_layers": depth,
            "mixtures": config.mixtures * depth,
            "query_scales": config.query_scales * depth,
            "logit_cap": config.logit_limit,
        }
    )


def _without(prefix: str, entry: str | Stored) -> str | Stored:
    if isinstance(entry, str):
        return entry.removeprefix(prefix)
    return dataclasses.replace(entry, tensor=entry.tensor.removeprefix(prefix))
