"""Published EAGLE-3 drafters: the layouts of SafeAILab and SpecForge, and of vLLM's speculators.

Both store one decoder layer, the matrix that fuses three of the target's states, and an output
layer over the ids that can be drafted (docs/how_to/published_drafters.md has the sources).
Configurations that `models.eagle` does not compute are refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import speculators
from specjax.hf.families.causal import ATTENTION, FEED_FORWARD, Decoder
from specjax.hf.families.eagle3_fields import (
    COUNTS,
    EAGLE3,
    LAYER,
    NESTED,
    NORMS,
    PLAIN,
    VOCABULARIES,
    equal,
    is_eagle3,
    is_p_eagle,
)
from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.published import (
    UNUSED,
    get_object,
    read_agreeing,
    read_nested,
    refuse_images,
    refuse_rotation,
)
from specjax.hf.families.rotary import get_rope
from specjax.hf.families.schema import (
    COMMON,
    MOST_LAYERS,
    NEEDED,
    NOTHING,
    Schema,
    choice,
    flag,
    format_value,
    only,
    part,
    raw,
    read,
    size,
)
from specjax.hf.families.speculators import DRAFTABLE, EMBEDDING, MAPPING
from specjax.models.eagle import Eagle, EagleCausalConfig
from specjax.models.target_shapes import USUAL

SPECULATED = 5
"""Draft length that an export proposes."""


def layers_after(ids: Sequence[int]) -> tuple[int, ...]:
    """Numbers of layers after which the target's states are read.

    Two ways of counting are in use. vLLM and its speculators name how many layers have run;
    SpecForge names the last one that has, from 0 on. As in SGLang, a list that has layer 1 is
    SpecForge's, also where such a file was converted: no EAGLE-3 drafter reads the states after
    the first layer.
    """
    shift = 1 if min(ids) == 1 else 0
    return tuple(sorted(number + shift for number in ids))


class PublishedEagle(Decoder[EagleCausalConfig]):
    """Shared parts of both layouts."""

    model, shape = Eagle, EagleCausalConfig
    prefix = ""
    ignored = r"t2d|d2t|(.*\.)?rotary_emb\.inv_freq"
    family: ClassVar[str]
    block: ClassVar[str]
    """Of the first layer's tensors."""

    def count_layers(self, layer: Mapping[str, Any]) -> int:
        """Layers of a drafter with checked fields of a `layer`."""
        return 1

    def own_attributes(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of shapes of this kind only, of checked `fields`."""
        return {}

    def drafter(
        self, fields: dict[str, Any], layer: dict[str, Any], qk_norm: bool, dtype: Any
    ) -> Any:
        """The shape of checked `fields` and those of its `layer`.

        The target sets the end tokens: special tokens in published files are often wrong.
        """
        refuse_images(layer)
        width = layer["hidden_size"]
        drafted = speculators.drafted_ids(layer, fields["draft_vocab_size"])
        ids = fields["eagle_aux_hidden_state_layer_ids"]
        features = layers_after(ids) if ids else ()
        target = fields["target_hidden_size"] or width
        made = self.build(
            layer | {"num_hidden_layers": self.count_layers(layer)},
            {"model_type": self.family},
            None,
            dtype,
            qk_norm=qk_norm,
            tied=False,
            target_width=target,
            features=features,
            draft_vocab=drafted,
            embedding_width=None if target == width else width,
            reads_first=False,
            feature_norms=_feature_norms(fields, len(features) or USUAL),
            normed_residual=fields["norm_before_residual"],
            normed_states=fields["norm_output"],
            **self.own_attributes(layer | fields),
        )
        refuse_rotation(get_rope(made))
        return made

    def of_stored(self, config: EagleCausalConfig, tensors: Collection[str]) -> EagleCausalConfig:
        after = f"layers.{config.num_layers}."
        second = next((name for name in sorted(tensors) if name.startswith(after)), None)
        if second and config.num_layers == 1:
            raise ValueError(
                f"num_hidden_layers is above 1: it has the tensor {second!r}, and drafters of"
                " several layers are not supported"
            )
        speculators.require_mapping(config.draft_vocab, config.vocab_size, tensors)
        if EMBEDDING not in tensors and config.embedding_width:
            raise ValueError(
                f"it lacks the tensor {EMBEDDING!r}, and the target's embedding is"
                f" {config.target_width} wide, the drafter's layer {config.d_model}"
            )
        return dataclasses.replace(config, embedded=EMBEDDING in tensors)

    def table(self, config: Any) -> Tensors:
        layer = {
            "embedding_norm": "input_layernorm",
            "state_norm": "hidden_norm",
            "ff_norm": "post_attention_layernorm",
            **ATTENTION,
            **FEED_FORWARD,
        }
        own: dict[str, str | Stored] = {"embedding": EMBEDDING} if config.embedded else {}
        if config.draft_vocab < config.vocab_size:
            own["ids"] = Stored(MAPPING, integer=True, place=True)
        return own | {
            "fuse": "fc",
            "final_norm": "norm",
            "head": "lm_head",
            "feature_norms_{}": "fc_norm.{}" if config.feature_norms > 1 else "input_norm",
            **nest_modules("layer", self.block, layer),
        }

    def repeat_tensors(
        self, config: EagleCausalConfig, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Which of the target's ids can be drafted."""
        return speculators.draftable_ids(config.draft_vocab, config.vocab_size, tensors)

    def layer_to_hf(self, config: EagleCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        """The words of its layer, and its special tokens."""
        words, ends = super().config_to_hf(config)
        kind = "qwen3" if config.qk_norm else "llama"
        return words | {"model_type": kind, "tie_word_embeddings": False}, ends


def _feature_norms(fields: dict[str, Any], read: int) -> int:
    if fields["norm_before_fc"] and fields["fc_norm"]:
        raise ValueError("fc_norm is true; it must be false where norm_before_fc is true")
    return 1 if fields["norm_before_fc"] else read if fields["fc_norm"] else 0


def _norms_to_hf(config: EagleCausalConfig) -> dict[str, bool]:
    return {
        "norm_before_residual": config.normed_residual,
        "norm_before_fc": config.feature_norms == 1,
        "fc_norm": config.feature_norms > 1,
        "norm_output": config.normed_states,
    }


def _wider(config: EagleCausalConfig) -> int | None:
    """The target's width where it is not the drafter's."""
    return None if config.target_width == config.d_model else config.target_width


@FAMILIES.register("eagle3")
class Eagle3(PublishedEagle):
    """EAGLE-3 drafters of SafeAILab, SpecForge, AngelSlim, nebius and Model Optimizer."""

    family = "eagle3"
    block = "midlayer"
    schema = Schema(
        LAYER
        | NORMS
        | COUNTS
        | {
            "model_type": choice("llama", PLAIN),
            # One layer is built for any value; some files have the target's number here.
            "num_hidden_layers": size(most=MOST_LAYERS),
            # A field of the target: the output layer has other rows than the embedding.
            "tie_word_embeddings": flag(False),
            "eagle_config": raw(),
            "num_aux_hidden_states": equal(USUAL, "so many layers are read"),
            "bias": only(False, "biases are not supported"),
            "qkv_bias": only(False, "biases are not supported"),
        },
        UNUSED,
        "llama",
        others={VOCABULARIES[1]: VOCABULARIES[0]},
    )

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        return is_eagle3(hf) and not is_p_eagle(hf)

    def rename_tensor(self, tensor: str) -> str:
        """The name in SafeAILab's layout; Model Optimizer's layer is `layers.0`."""
        bare = tensor.removeprefix("model.")
        return re.sub(r"^layers\.0\.", f"{self.block}.", bare)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleCausalConfig:
        fields = read(self.schema, hf, GENERATION)
        key = "eagle_aux_hidden_state_layer_ids"
        inside = read_nested(NESTED, get_object(fields, "eagle_config"), "eagle_config")[key]
        fields[key] = read_agreeing(key, fields[key], inside, "eagle_config")
        if fields[key] and len(fields[key]) != USUAL:
            raise ValueError(f"{key} is {format_value(fields[key])}; it must name {USUAL} layers")
        return self.drafter(fields, fields, False, dtype)

    def config_to_hf(self, config: EagleCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        words, ends = self.layer_to_hf(config)
        words |= {"architectures": list(EAGLE3[:1])}
        words |= {"draft_vocab_size": config.draft_vocab}
        # SpecForge reads its own word `norm_output` otherwise where it is false.
        words |= {name: True for name, on in _norms_to_hf(config).items() if on}
        if width := _wider(config):
            words["target_hidden_size"] = width
        if config.features:
            layers = {"eagle_aux_hidden_state_layer_ids": list(config.features)}
            words["eagle_config"] = layers | {"use_aux_hidden_state": True}
        return words, ends


@FAMILIES.register("eagle3_speculators")
class Eagle3Speculators(PublishedEagle):
    """EAGLE-3 drafters in the layout of vLLM's speculators."""

    family = "eagle3_speculators"
    block = "layers.0"
    kind: ClassVar[str] = "eagle3"
    """What speculators call it."""

    schema = Schema(
        NORMS
        | COUNTS
        | {
            "norm_before_residual": dataclasses.replace(flag(None), default=NEEDED),
            "speculators_model_type": choice("eagle3", ("eagle3",)),
            "speculators_config": raw(),
            "transformer_layer_config": raw(),
        },
        COMMON | speculators.HARMLESS | {"embed_requires_grad"},
        NOTHING,  # the exporter's own class, not one of transformers
    )
    layers: ClassVar[Mapping[str, Schema]] = {
        kind: Schema(LAYER, UNUSED | {"tie_word_embeddings"}, kind) for kind in ("llama", "qwen3")
    }
    draftable = DRAFTABLE

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        return hf.get(speculators.TYPE) == "eagle3"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> EagleCausalConfig:
        fields = read(self.schema, hf, GENERATION)
        layer = speculators.read_layer(fields[speculators.LAYER], self.layers)
        with part(speculators.LAYER):
            made = self.drafter(fields, layer, layer["model_type"] == "qwen3", dtype)
        name = speculators.read_target_name(fields["speculators_config"])
        return dataclasses.replace(made, target_name=name)

    def config_to_hf(self, config: EagleCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        layer, ends = self.layer_to_hf(config)
        del layer["architectures"]
        words = {
            "architectures": ["Eagle3DraftModel"],
            "speculators_model_type": self.kind,
            "draft_vocab_size": config.draft_vocab,
            "target_hidden_size": _wider(config),
            "eagle_aux_hidden_state_layer_ids": list(config.features) or None,
            "embed_requires_grad": False,
            "tie_word_embeddings": False,
            "transformer_layer_config": layer,
            "speculators_config": speculators.describe_proposal(
                self.kind, SPECULATED, config.target_name
            ),
        }
        return words | _norms_to_hf(config), ends
