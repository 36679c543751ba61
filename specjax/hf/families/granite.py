"""Granite's mixtures of experts, and its hybrids with Mamba-2 layers (Granite 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import LAYER, whole
from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.layer_types import FULL, OLDER, RECURRENT, read_kinds
from specjax.hf.families.llama import Granite
from specjax.hf.families.mamba import CHUNK, MAMBA, describe_mamba, name_mamba, read_mamba
from specjax.hf.families.mixtures import LOSSES
from specjax.hf.families.schema import choice, raw, size
from specjax.models.experts import Mixture

EXPERTS: Tensors = {
    "ff.router.logits": "block_sparse_moe.router.layer",
    "ff.gates": Stored("block_sparse_moe.input_linear.weight", True, parts=2, batched=True),
    "ff.ups": Stored("block_sparse_moe.input_linear.weight", True, 1, 2, batched=True),
    "ff.downs": Stored("block_sparse_moe.output_linear.weight", True, batched=True),
}
"""Modules of a mixture: one tensor has the gates and ways up of all experts."""

SHARED: Tensors = {
    "gate": Stored("input_linear", parts=2),
    "up": Stored("input_linear", part=1, parts=2),
    "down": "output_linear",
}
"""Modules of the network that all tokens pass."""

WIDTH = "shared_intermediate_size"


@FAMILIES.register("granitemoe")
class GraniteMoE(Granite):
    """Granite 3 with a mixture of experts in every layer."""

    schema = Granite.schema.without("mlp_bias").derive(
        "granitemoe", LOSSES, num_local_experts=size(8), num_experts_per_tok=size(2)
    )
    architecture = "GraniteMoeForCausalLM"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes, experts = super().from_fields(fields, hf), fields["num_local_experts"]
        if not experts:
            return attributes | {"d_ff": fields[WIDTH]}
        mixture = Mixture(
            experts=experts,
            chosen=fields["num_experts_per_tok"],
            d_ff=fields["intermediate_size"],
            shared=fields.get(WIDTH, 0),
        )
        return attributes | {"mixtures": (mixture,) * fields["num_hidden_layers"]}

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = config.layer_mixtures[0]
        return super().to_fields(config) | {
            "num_local_experts": mixture.experts if mixture else 0,
            "num_experts_per_tok": mixture.chosen if mixture else 0,
        }

    def table(self, config: Any) -> Tensors:
        network = "ff.shared.expert" if config.mixtures else "ff"
        return whole({**LAYER, **EXPERTS, **nest_modules(network, "shared_mlp", SHARED)})


@FAMILIES.register("granitemoeshared")
class GraniteSharedMoE(GraniteMoE):
    """Granite with mixtures of experts and a network that all tokens pass."""

    schema = GraniteMoE.schema.derive("granitemoeshared", **{WIDTH: size(0, least=0)})
    architecture = "GraniteMoeSharedForCausalLM"

    def to_fields(self, config: Any) -> dict[str, Any]:
        mixture = config.layer_mixtures[0]
        return super().to_fields(config) | {WIDTH: mixture.shared if mixture else config.d_ff}


@FAMILIES.register("granitemoehybrid")
class GraniteMoEHybrid(GraniteSharedMoE):
    """Granite 4: Mamba-2 or attention in each layer, perhaps experts, perhaps no rotation."""

    schema = GraniteSharedMoE.schema.derive(
        "granitemoehybrid",
        (CHUNK,),
        **MAMBA,
        **{WIDTH: size(1024)},
        num_local_experts=size(8, least=0),
        num_experts_per_tok=size(2, least=0),
        layer_types=raw(),
        position_embedding_type=choice(None, ("rope", "nope")),
    )
    architecture = "GraniteMoeHybridForCausalLM"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes, mamba = super().from_fields(fields, hf), read_mamba(fields)
        layers, kinds = fields["num_hidden_layers"], fields["layer_types"]
        kinds = [RECURRENT] * layers if kinds is None else kinds
        kinds = read_kinds(kinds, layers, (RECURRENT, FULL, *OLDER))
        attributes["recurrences"] = tuple(mamba if kind == RECURRENT else None for kind in kinds)
        if fields["position_embedding_type"] != "rope":
            attributes["ropes"] = (None,) * layers
        return attributes

    def to_fields(self, config: Any) -> dict[str, Any]:
        return (
            super().to_fields(config)
            | describe_mamba(config)
            | {
                "layer_types": [RECURRENT if one else FULL for one in config.recurrences],
                "position_embedding_type": None if config.ropes else "rope",
            }
        )

    def table(self, config: Any) -> Tensors:
        mamba = nest_modules("layers_{}.recurrent", "model.layers.{}.mamba", name_mamba(config))
        return {**super().table(config), **mamba}
