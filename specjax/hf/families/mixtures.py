"""Families with mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE and GLM-4-MoE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, FEED_FORWARD, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.layer_types import SWITCHED, WINDOWS
from specjax.hf.families.schema import (
    ALL_FULL,
    Field,
    flag,
    format_value,
    is_int,
    number,
    raw,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.experts import Groups, Mixture
from specjax.models.positions import Rope

LOSSES = ("output_router_logits", "router_aux_loss_coef")
"""Fields of terms of a training loss."""


MATRICES = ("gate_proj", "up_proj", "down_proj")
"""The usual names of an expert's gate, way up and way down."""


def name_experts(
    experts: int, block: str = "mlp", matrices: Sequence[str] = MATRICES, shared: str = ""
) -> Tensors:
    """The modules of a layer's mixture in `block`, and of its `shared` expert of this name."""
    correction = f"{block}.gate.e_score_correction_bias"
    own: dict[str, str | Stored] = {
        "ff.router.logits": f"{block}.gate",
        "ff.router.correction": Stored(correction, precise=True),
    }
    for ours, theirs in zip(("gates", "ups", "downs"), matrices, strict=True):
        tensor = f"{block}.experts.{{{{}}}}.{theirs}.weight"
        own[f"ff.{ours}"] = Stored(tensor, True, stacked=experts)
    if not shared:
        return own
    own["ff.shared.token_gate"] = f"{block}.{shared}_gate"
    for ours, theirs in zip(FEED_FORWARD, matrices, strict=True):
        own[ours.replace("ff", "ff.shared.expert")] = f"{block}.{shared}.{theirs}"
    return own


class _Mixed(Decoder[CausalConfig]):
    """A decoder whose checkpoints have a gate and experts in each layer that is mixed."""

    block: ClassVar[str] = "mlp"
    """Of a layer's mixture."""

    matrices: ClassVar[tuple[str, str, str]] = MATRICES
    """Of each expert: the gate, the way up and the way down."""

    shared: ClassVar[str] = ""
    """Of a layer's shared expert; empty: there is none."""

    windows = "all"

    def table(self, config: Any) -> Tensors:
        experts = next(mixture.experts for mixture in config.mixtures if mixture)
        return whole({**LAYER, **name_experts(experts, self.block, self.matrices, self.shared)})


@FAMILIES.register("mixtral")
class Mixtral(_Mixed):
    """Mistral with a mixture of experts in every layer."""

    schema = Decoder.schema.derive(
        "mixtral",
        (*LOSSES, "router_jitter_noise"),
        **WINDOWS,
        rope_theta=number(1e6),
        num_local_experts=size(8),
        num_experts_per_tok=size(2),
    )
    block, matrices = "block_sparse_moe", ("w1", "w3", "w2")

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        mixture = Mixture(
            experts=fields["num_local_experts"],
            chosen=fields["num_experts_per_tok"],
            d_ff=fields["intermediate_size"],
        )
        mixtures = {"mixtures": (mixture,) * fields["num_hidden_layers"]}
        return super().from_fields(fields, hf) | mixtures

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = config.mixtures[0]
        return super().to_fields(config) | {
            "num_local_experts": mixture.experts,
            "num_experts_per_tok": mixture.chosen,
        }


QWEN: dict[str, Field] = {
    "num_experts": size(128),
    "num_experts_per_tok": size(8),
    "moe_intermediate_size": size(768),
    "decoder_sparse_step": size(1),
    "mlp_only_layers": raw(),
    "norm_topk_prob": flag(False),
}
"""Fields of Qwen's mixtures."""


@FAMILIES.register("qwen3_moe")
class Qwen3MoE(_Mixed):
    """Qwen3 with mixtures of experts, in all layers or in some."""

    schema = Decoder.schema.derive("qwen3_moe", LOSSES, **BIAS, **SWITCHED, **QWEN)
    architecture = "Qwen3MoeForCausalLM"
    constants: ClassVar[dict[str, Any]] = {"qk_norm": True}

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"mixtures": mix_layers(fields)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | mixtures_to_fields(config)


@FAMILIES.register("qwen2_moe")
class Qwen2MoE(Qwen3MoE):
    """Qwen2 with mixtures of experts, and an expert with a gate that all tokens share."""

    schema = Decoder.schema.derive(
        "qwen2_moe",
        LOSSES,
        **SWITCHED | {"sliding_window": size(None, least=0)},  # 0 is written where none slides
        **QWEN,
        qkv_bias=flag(True),
        max_window_layers=size(28, least=0),
        shared_expert_intermediate_size=size(5632),
    )
    architecture = "Qwen2MoeForCausalLM"
    constants: ClassVar[dict[str, Any]] = {}
    shared = "shared_expert"
    windows = "mixed"

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        """Every other layer of the first `max_window_layers` slides."""
        first = fields["max_window_layers"] if fields["use_sliding_window"] else 0
        return [layer % 2 == 0 and layer < first for layer in range(fields["num_hidden_layers"])]

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"qkv_bias": fields["qkv_bias"]}

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = next(mixture for mixture in config.mixtures if mixture)
        return super().to_fields(config) | {
            "qkv_bias": config.qkv_bias,
            "shared_expert_intermediate_size": mixture.shared,
        }


def mixtures_to_fields(config: CausalConfig) -> dict[str, Any]:
    """The fields that `mix_layers` reads."""
    mixture = next(mixture for mixture in config.mixtures if mixture)
    return {
        "num_experts": mixture.experts,
        "num_experts_per_tok": mixture.chosen,
        "moe_intermediate_size": mixture.d_ff,
        "norm_topk_prob": mixture.normalized,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [i for i, has in enumerate(config.mixtures) if has is None],
    }


def mix_layers(fields: Mapping[str, Any]) -> tuple[Mixture | None, ...]:
    """The mixtures of Qwen's layers, of checked `fields`.

    Every `decoder_sparse_step`-th layer has one, unless it is named dense.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    layers, dense = fields["num_hidden_layers"], fields["mlp_only_layers"]
    dense = [] if dense is None else dense
    if not (isinstance(dense, list) and all(is_int(layer) for layer in dense)):
        raise ValueError(
            f"mlp_only_layers is {format_value(dense)}; it must be a list of layers, or null"
        )
    shared = fields.get("shared_expert_intermediate_size", 0)
    mixture = Mixture(
        experts=fields["num_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["moe_intermediate_size"],
        normalized=fields["norm_topk_prob"],
        shared=shared,
        gated_shared=shared > 0,
    )
    step = fields["decoder_sparse_step"]
    mixed = [(index + 1) % step == 0 and index not in dense for index in range(layers)]
    if not any(mixed):
        raise ValueError(
            f"decoder_sparse_step is {step} and mlp_only_layers is {format_value(dense)}; one of "
            "the"
            f" {layers} layers must have experts"
        )
    return tuple(mixture if has else None for has in mixed)


DEEPSEEK: dict[str, Field] = {
    "n_routed_experts": size(),
    "num_experts_per_tok": size(8),
    "moe_intermediate_size": size(),
    "n_shared_experts": size(1),
    "routed_scaling_factor": number(1.0),
    "n_group": size(1),
    "topk_group": size(1),
    "norm_topk_prob": flag(True),
    "first_k_dense_replace": size(0, least=0),
}
"""Fields of DeepSeek's mixtures, which GLM has too."""


def mix_last_layers(fields: Mapping[str, Any], **more: Any) -> tuple[Mixture | None, ...]:
    """The mixtures of DeepSeek's layers, of checked `fields`: the first layers are dense.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    layers, dense = fields["num_hidden_layers"], fields["first_k_dense_replace"]
    if dense >= layers:
        raise ValueError(
            f"first_k_dense_replace is {dense}; it must be less than the {layers} layers"
        )
    mixture = Mixture(
        experts=fields["n_routed_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["moe_intermediate_size"],
        shared=fields["n_shared_experts"] * fields["moe_intermediate_size"],
        scale=float(fields["routed_scaling_factor"]),
        **more,
    )
    return (None,) * dense + (mixture,) * (layers - dense)


def describe_last_layers(config: CausalConfig) -> dict[str, Any]:
    """The fields of `mix_last_layers`."""
    mixture = next(filter(None, config.mixtures))
    return {
        "n_routed_experts": mixture.experts,
        "num_experts_per_tok": mixture.chosen,
        "moe_intermediate_size": mixture.d_ff,
        "n_shared_experts": mixture.shared // mixture.d_ff,
        "routed_scaling_factor": mixture.scale,
        "n_group": mixture.groups.count if mixture.groups else 1,
        "topk_group": mixture.groups.chosen if mixture.groups else 1,
        "norm_topk_prob": mixture.normalized,
        "first_k_dense_replace": config.mixtures.index(mixture),
    }


def route_by_sigmoids(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of mixtures of DeepSeek-V3 and GLM-4.5, of checked `fields`."""
    groups = Groups(fields["n_group"], fields["topk_group"], summed=2)
    normalized = fields["norm_topk_prob"]
    return {"scoring": "sigmoid", "corrected": True, "groups": groups, "normalized": normalized}


@FAMILIES.register("glm4_moe")
class Glm4MoE(_Mixed):
    """GLM-4.5 to 4.7: half of each head is rotated, sigmoids and a correction select experts."""

    schema = Decoder.schema.derive(
        "glm4_moe",
        ("output_router_logits",),
        **BIAS,
        **ALL_FULL,
        **DEEPSEEK,
        partial_rotary_factor=number(0.5),
        use_qk_norm=flag(False),
        num_mtp_layers=size(1, least=0),
    )
    architecture = "Glm4MoeForCausalLM"
    shared, windows = "shared_experts", ""

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        return rotary.partial_rope_from_hf(fields, d_head)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {
            "out_bias": False,
            "qk_norm": fields["use_qk_norm"],
            "mixtures": mix_last_layers(fields, **route_by_sigmoids(fields)),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        rope = rotary.get_rope(config)
        return (
            super().to_fields(config)
            | describe_last_layers(config)
            | {
                "partial_rotary_factor": rotary.share_to_hf(rope.width, config.d_head),
                "use_qk_norm": config.qk_norm,
                "num_nextn_predict_layers": 0,
            }
        )
