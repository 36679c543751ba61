"""Families with mixtures of experts: Mixtral and Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import BIAS, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.layer_types import SWITCHED, WINDOWS
from specjax.hf.families.schema import flag, format_value, is_int, number, raw, size
from specjax.models.causal import CausalConfig
from specjax.models.experts import Mixture

LOSSES = ("output_router_logits", "router_aux_loss_coef")
"""Fields of terms of a training loss."""


class _Mixed(Decoder[CausalConfig]):
    """A decoder whose checkpoints have a gate and experts in each layer that is mixed."""

    block: ClassVar[str]
    """Of a layer's mixture."""

    matrices: ClassVar[tuple[str, str, str]]
    """Of each expert: the gate, the way up and the way down."""

    windows = "all"

    def table(self, config: Any) -> Tensors:
        counts = [mixture.experts for mixture in config.mixtures if mixture]
        experts = f"model.layers.{{}}.{self.block}.experts.{{{{}}}}"
        own: dict[str, str | Stored] = {
            "layers_{}.ff.router.logits": f"model.layers.{{}}.{self.block}.gate"
        }
        for ours, theirs in zip(("gates", "ups", "downs"), self.matrices, strict=True):
            tensor = f"{experts}.{theirs}.weight"
            own[f"layers_{{}}.ff.{ours}"] = Stored(tensor, True, stacked=counts[0])
        return {**whole(LAYER), **own}


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


@FAMILIES.register("qwen3_moe")
class Qwen3MoE(_Mixed):
    """Qwen3 with mixtures of experts, in all layers or in some."""

    schema = Decoder.schema.derive(
        "qwen3_moe",
        LOSSES,
        **BIAS,
        **SWITCHED,
        num_experts=size(128),
        num_experts_per_tok=size(8),
        moe_intermediate_size=size(768),
        decoder_sparse_step=size(1),
        mlp_only_layers=raw(),
        norm_topk_prob=flag(False),
    )
    architecture = "Qwen3MoeForCausalLM"
    constants: ClassVar[dict[str, Any]] = {"qk_norm": True}
    block, matrices = "mlp", ("gate_proj", "up_proj", "down_proj")

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"mixtures": _mixtures(fields)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = next(mixture for mixture in config.mixtures if mixture)
        return super().to_fields(config) | {
            "num_experts": mixture.experts,
            "num_experts_per_tok": mixture.chosen,
            "moe_intermediate_size": mixture.d_ff,
            "norm_topk_prob": mixture.normalized,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [i for i, has in enumerate(config.mixtures) if has is None],
        }


def _mixtures(fields: dict[str, Any]) -> tuple[Mixture | None, ...]:
    """Of each layer; every `decoder_sparse_step`-th has one, unless it is named dense."""
    layers, dense = fields["num_hidden_layers"], fields["mlp_only_layers"]
    dense = [] if dense is None else dense
    if not (isinstance(dense, list) and all(is_int(layer) for layer in dense)):
        raise ValueError(
            f"mlp_only_layers is {format_value(dense)}; it must be a list of layers, or null"
        )
    mixture = Mixture(
        experts=fields["num_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["moe_intermediate_size"],
        normalized=fields["norm_topk_prob"],
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
