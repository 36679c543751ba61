"""Mixtral, and where checkpoints keep the experts of a mixture."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Stored
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import Schema, number, only, read, size
from specjax.models.base import Where
from specjax.models.causal import CausalConfig
from specjax.models.experts import Mixture

HARMLESS = llama.HARMLESS | {"output_router_logits", "router_aux_loss_coef"}
"""What else changes nothing: terms of a training loss."""


def expert_names(
    config: CausalConfig,
    dense: dict[Where, Stored],
    block: str,
    matrices: tuple[str, str, str],
) -> dict[Where, Stored]:
    """Where parameters are stored: those of the `dense` model, and its layers' experts.

    Tensors of a layer's mixture have names that begin with `block` and the layer's number; of each
    expert the gate, the way up and the way down have those of `matrices`.
    """
    mixtures = dict(enumerate(config.layer_mixtures))
    mixed = {(f"layers_{index}", "ff") for index, mixture in mixtures.items() if mixture}
    stored = {where: one for where, one in dense.items() if where[:2] not in mixed}
    for index, mixture in mixtures.items():
        if mixture is None:
            continue
        ff, tensors = (f"layers_{index}", "ff"), block.format(index)
        stored[*ff, "router", "logits", "kernel"] = Stored(f"{tensors}.gate.weight", True)
        for ours, theirs in zip(("gates", "ups", "downs"), matrices, strict=True):
            tensor = f"{tensors}.experts.{{}}.{theirs}.weight"
            stored[*ff, ours] = Stored(tensor, True, stacked=mixture.experts)
    return stored


@FAMILIES.register("mixtral")
class Mixtral(llama.Llama[CausalConfig]):
    """Mistral with a mixture of experts in every layer."""

    schema = Schema(
        fields=llama.FIELDS
        | {
            "num_key_value_heads": size(8),
            "max_position_embeddings": size(4096 * 32),
            "rms_norm_eps": number(1e-5),
            "rope_theta": number(1e6),
            "sliding_window": size(None),
            "num_local_experts": size(8),
            "num_experts_per_tok": size(2),
            "layer_types": only(None),
        },
        aliases={"num_experts": "num_local_experts"},
        harmless=HARMLESS | {"router_jitter_noise"},
        declared=declared_by("mixtral"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        window, layers = fields["sliding_window"], fields["num_hidden_layers"]
        mixture = Mixture(
            experts=fields["num_local_experts"],
            chosen=fields["num_experts_per_tok"],
            d_ff=fields["intermediate_size"],
        )
        return llama.causal_config(
            fields,
            hf,
            generation,
            dtype,
            windows=(window,) * layers if window else (),
            mixtures=(mixture,) * layers,
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        mixture = next(mixture for mixture in config.mixtures if mixture)
        own = {
            "sliding_window": config.windows[0] if config.windows else None,
            "num_local_experts": mixture.experts,
            "num_experts_per_tok": mixture.chosen,
        }
        return shape | own, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        block = "model.layers.{}.block_sparse_moe"
        return expert_names(config, super().names(config), block, ("w1", "w3", "w2"))
