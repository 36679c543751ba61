"""Block drafters in the layout of vLLM's speculators: DFlash, DSpark and DFlash 2.

The layers are Qwen3's for any class that `transformer_layer_config` names, whose defaults count
(docs/how_to/published_drafters.md has the sources). Layers of the target are counted as those that
have run: 1 is the first one, 0 in z-lab's layout. Blocks are causal in layers with a window only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import corrections, speculators
from specjax.hf.families.causal import FIELDS, Decoder
from specjax.hf.families.dflash_published import PublishedDFlash, mask_token
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import SWITCHED
from specjax.hf.families.llama import Qwen3
from specjax.hf.families.published import UNUSED, refuse_images, refuse_rotation
from specjax.hf.families.rotary import get_rope
from specjax.hf.families.schema import (
    COMMON,
    NEEDED,
    Field,
    Schema,
    choice,
    flag,
    format_value,
    is_int,
    only,
    part,
    raw,
    read,
    size,
)
from specjax.models.dflash import DFlash, DFlashCausalConfig

FAMILY = "dflash_speculators"


def _rising_list() -> Field:
    def fits(value: Any) -> bool:
        numbers = isinstance(value, list | tuple) and bool(value) and all(map(is_int, value))
        return numbers and sorted(set(value)) == list(value) and value[0] >= 1

    return Field(NEEDED, "a rising list of layers of the target, from 1 on", fits)


def _with_default(**defaults: Any) -> dict[str, Field]:
    """Fields of corrections with the defaults of the layout's class."""
    fields = corrections.FIELDS
    return {
        name: dataclasses.replace(fields[name], default=value) for name, value in defaults.items()
    }


_SHARED: dict[str, Field] = {
    speculators.TYPE: choice(NEEDED, ("dflash", "dspark", "dflash2")),
    speculators.LAYER: raw(),
    "speculators_config": raw(),
    "draft_vocab_size": size(None),
    "block_size": size(8, least=2),
    "aux_hidden_state_layer_ids": _rising_list(),
    "mask_token_id": size(None, least=0),
    "sliding_window_non_causal": flag(False),
    "sample_from_anchor": flag(None),
    "target_hidden_size": size(None),
}

_DSPARK = _with_default(
    markov_rank=256,
    markov_head_type="vanilla",
    enable_confidence_head=True,
    confidence_head_with_markov=True,
    confidence_temperatures=[],
)

_DFLASH2 = _with_default(
    conv_kernel_size=2, conv_group_size=16, selector_rank=256, selector_top_k=16
) | {
    "sliding_window_non_causal": flag(True),
    "sample_from_anchor": only(False, "the class of dflash2 has no other blocks"),
    "draft_ffn_type": choice("dense", ("dense",)),
}

_HARMLESS = COMMON | speculators.HARMLESS | {"max_anchors"}

_OF_EXPERTS = frozenset(
    """
    moe_experts_implementation moe_intermediate_size norm_topk_prob num_experts num_experts_per_tok
    shared_expert_intermediate_size
    """.split()  # noqa: SIM905
)
"""Fields that count where a drafter has mixtures of experts."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A value of `speculators_model_type`."""

    architecture: str
    schema: Schema


KINDS_OF_BLOCKS = {
    "dflash": Kind("DFlashDraftModel", Schema(_SHARED, _HARMLESS)),
    "dspark": Kind("DSparkDraftModel", Schema(_SHARED | _DSPARK, _HARMLESS)),
    "dflash2": Kind("DFlash2DraftModel", Schema(_SHARED | _DFLASH2, _HARMLESS | _OF_EXPERTS)),
}
"""What is read; unknown fields are refused."""

_LAYER: dict[str, Field] = (
    FIELDS
    | SWITCHED
    | {
        "max_window_layers": size(28, least=0),
        "attention_bias": flag(False),
        "mlp_bias": only(False, "such biases are not supported"),
        "hc_mult": Field(1, "1: several streams of states are not supported", lambda x: x == 1),
    }
)
LAYERS = {
    name: Schema(_LAYER, UNUSED - {"max_window_layers", "sliding_window"}, name)
    for name in ("qwen3", "llama")
}


@FAMILIES.register(FAMILY)
class DFlashSpeculators(Decoder[DFlashCausalConfig]):
    """DFlash, DSpark and DFlash 2 drafters in the layout of vLLM's speculators."""

    model, shape = DFlash, DFlashCausalConfig
    prefix = ""
    ignored = r"t2d|d2t|(.*\.)?rotary_emb\.inv_freq|verifier_(norm|lm_head)\.weight"
    schema = Schema(_SHARED, _HARMLESS)
    draftable = speculators.DRAFTABLE
    windows: ClassVar[str] = "mixed"

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        kind = hf.get(speculators.TYPE)
        return isinstance(kind, str) and kind in KINDS_OF_BLOCKS

    def slides(self, fields: Mapping[str, Any], window: int | None) -> list[bool]:
        return list(Qwen3().slides(fields, window))

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> DFlashCausalConfig:
        kind = KINDS_OF_BLOCKS.get(hf.get(speculators.TYPE, ""))
        fields = read(kind.schema if kind else self.schema, hf, GENERATION)
        layer = speculators.read_layer(fields[speculators.LAYER], LAYERS)
        own = {name: value for name, value in fields.items() if name in corrections.FIELDS}
        own = read(Schema(corrections.FIELDS), own)
        refuse_images(layer)
        _refuse_another_width(fields["target_hidden_size"], layer["hidden_size"])
        drafted = speculators.drafted_ids(layer, fields["draft_vocab_size"])
        with part(speculators.LAYER):
            made = self.build(
                layer,
                {"model_type": FAMILY},
                None,
                dtype,
                anchor_first=_anchor_first(fields),
                correction=corrections.read_correction(own),
                convolution=corrections.read_convolution(own, layer["hidden_size"]),
                qk_norm=True,
                tied=False,
                target_width=layer["hidden_size"],
                features=tuple(fields["aux_hidden_state_layer_ids"]),
                draft_vocab=drafted,
                block_size=fields["block_size"],
                mask_token=mask_token(fields["mask_token_id"], layer["vocab_size"]),
                target_name=speculators.read_target_name(fields["speculators_config"]),
            )
        refuse_rotation(get_rope(made))
        if made.windows and not fields["sliding_window_non_causal"]:
            made = dataclasses.replace(made, is_causal=None)
        for field, value, allowed in unlike_kind(made):
            raise ValueError(f"{field} is {format_value(value)}; it must be {allowed}")
        return made

    def of_stored(self, config: DFlashCausalConfig, tensors: Collection[str]) -> DFlashCausalConfig:
        """With the target's embedding and output layer where the file lacks its own."""
        drafted, headed = config.draft_vocab, speculators.HEAD in tensors
        speculators.require_mapping(drafted, config.vocab_size, tensors)
        if drafted < config.vocab_size and not headed:
            raise ValueError(
                f"it lacks the tensor {speculators.HEAD!r}, the output layer of its {drafted} ids"
            )
        embedded = speculators.EMBEDDING in tensors
        return dataclasses.replace(config, embedded=embedded, headed=headed)

    def table(self, config: Any) -> Tensors:
        own: dict[str, str | Stored] = dict(corrections.correction_tensors(config))
        if config.embedded:
            own["embedding"] = speculators.EMBEDDING
        if config.headed:
            own["head"] = speculators.HEAD.removesuffix(".weight")
        if config.draft_vocab < config.vocab_size:
            own["ids"] = Stored(speculators.MAPPING, integer=True, place=True)
        return {**PublishedDFlash.tensors, **own}

    def repeat_tensors(
        self, config: DFlashCausalConfig, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Which of the target's ids can be drafted."""
        return speculators.draftable_ids(config.draft_vocab, config.vocab_size, tensors)

    def config_to_hf(self, config: DFlashCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        kind = kind_of(config)
        words: dict[str, Any] = {
            "architectures": [KINDS_OF_BLOCKS[kind].architecture],
            speculators.TYPE: kind,
            "draft_vocab_size": config.draft_vocab,
            "block_size": config.block_size,
            "aux_hidden_state_layer_ids": list(config.features),
            "mask_token_id": config.mask_token,
            "sliding_window_non_causal": config.is_causal is False,
            "sample_from_anchor": config.anchor_first,
            "target_hidden_size": None,
            "tie_word_embeddings": False,
            **corrections.written_corrections(config),
        }
        if kind == "dspark":
            words["enable_confidence_head"] = _has_confidence(config)
        layer, ends = super().config_to_hf(config)
        del layer["architectures"]
        words[speculators.LAYER] = layer | {
            "model_type": "qwen3",
            "attention_bias": config.qkv_bias,
            "use_sliding_window": any(config.layer_windows),
        }
        name, tokens = config.target_name, config.longest
        words["speculators_config"] = speculators.describe_proposal(kind, tokens, name)
        return words, ends


def kind_of(config: DFlashCausalConfig) -> str:
    """The value of `speculators_model_type` of a shape."""
    correction = config.correction
    if config.convolution or (correction and correction.kind == "selector"):
        return "dflash2"
    return "dspark" if correction else "dflash"


def _has_confidence(config: DFlashCausalConfig) -> bool:
    return config.correction is not None and config.correction.confidence


def unlike_kind(config: DFlashCausalConfig) -> Iterator[tuple[str, Any, str]]:
    """(field, value, what is allowed) of all that the layout cannot say of a shape."""
    correction, size = config.correction, config.vocab_size
    if correction and correction.kind == "gru":
        yield "gru_hidden_dim", correction.hidden, "null: the layout has no such correction"
    if kind_of(config) == "dflash2":
        if not (correction and correction.kind == "selector"):
            yield "selector_rank", None, "an integer where conv_kernel_size is one"
        if not config.convolution:
            yield "conv_kernel_size", None, "an integer where selector_rank is one"
        if _has_confidence(config):
            yield "enable_confidence_head", True, "false where selector_rank is an integer"
        if config.anchor_first:
            yield "anchor_first", True, "false where selector_rank is an integer"
        if config.draft_vocab < size:
            yield "draft_vocab_size", config.draft_vocab, f"vocab_size, {size}, with a selector"
    if config.is_causal and 0 in config.layer_windows:
        yield "is_causal", True, "false: in layers without a window no block is causal"
    if tuple(sorted(config.features)) != config.features:
        yield "target_layer_ids", config.features, "rising"
    if config.logit_multiplier != 1.0:
        yield "output_multiplier", config.logit_multiplier, "1"
    if config.logit_limit:
        yield "final_logit_softcapping", config.logit_limit, "null"


def _anchor_first(fields: Mapping[str, Any]) -> bool:
    """Whether a place gives the token after it.

    Files that do not say so are older than the field, which was then false: their blocks propose a
    token less than they have places. Some DSpark drafters propose as many.
    """
    said = fields["sample_from_anchor"]
    if said is not None or fields[speculators.TYPE] != "dspark":
        return bool(said)
    return speculators.read_length(fields["speculators_config"]) == fields["block_size"]


def _refuse_another_width(target: int | None, width: int) -> None:
    """Refuses a target of another width than the drafter, which the layout's class cannot read.

    Raises:
      ValueError: naming both.
    """
    if target not in (None, width):
        raise ValueError(f"target_hidden_size is {target}; it must be null or hidden_size, {width}")
