"""Nemotron-H: each layer has one sublayer, of a kind that a pattern names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import Decoder, whole
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.layer_types import FULL, OLDER, RECURRENT, read_kinds
from specjax.hf.families.mamba import name_mamba
from specjax.hf.families.mixtures import name_experts, route_by_sigmoids
from specjax.hf.families.schema import (
    Field,
    choice,
    flag,
    format_value,
    number,
    only,
    raw,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.experts import Mixture
from specjax.models.layers import ACTIVATIONS
from specjax.models.mamba2 import Mamba2
from specjax.models.positions import Rope

DENSE, MIXED = "mlp", "moe"
LETTERS = {"M": RECURRENT, "*": FULL, "-": DENSE, "E": MIXED}
"""Kinds of layers in `hybrid_override_pattern`."""

MAMBA: dict[str, Field] = {
    "mamba_num_heads": size(128),
    "mamba_head_dim": size(64),
    "mamba_hidden_act": choice("silu", ACTIVATIONS),
    "ssm_state_size": size(128),
    "n_groups": size(8),
    "conv_kernel": size(4, least=2),
    "use_conv_bias": flag(True),
    "use_bias": flag(False),
    "time_step_min": number(0.001),
}
"""Fields of layers with Mamba-2; transformers limits the steps of prompts only."""

EXPERTS: dict[str, Field] = {
    "n_routed_experts": size(8),
    "num_experts_per_tok": size(2),
    "moe_intermediate_size": size(7688),
    "moe_shared_expert_intermediate_size": size(7688),
    "moe_latent_size": size(None),
    "routed_scaling_factor": number(1.0),
    "n_group": size(1),
    "topk_group": size(1),
    "norm_topk_prob": flag(True),
}
"""Fields of layers with experts."""

OLD = {
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_dt_min": "time_step_min",
}
"""Older names of fields."""

UNUSED = """
    attention_bias chunk_size expand hidden_dropout mamba_chunk_size mamba_dt_init_floor
    mamba_dt_limit mamba_dt_max mamba_expand mamba_proj_bias mamba_ssm_cache_dtype
    moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type n_shared_experts
    num_hidden_layers num_logits_to_keep num_nextn_predict_layers output_router_logits
    rescale_prenorm_residual residual_in_fp32 sliding_window time_step_floor time_step_limit
    time_step_max use_mamba_kernels
""".split()  # noqa: SIM905
"""Fields that change no token in transformers."""

SCHEMA = Decoder.schema.without(
    *rotary.FIELDS, "num_hidden_layers", "hidden_act", "rms_norm_eps"
).derive(
    "nemotron_h",
    UNUSED,
    **MAMBA,
    **EXPERTS,
    layers_block_type=raw(),
    hybrid_override_pattern=raw(),
    mlp_hidden_act=choice("relu2", ACTIVATIONS),
    mlp_bias=flag(False),
    layer_norm_epsilon=number(1e-5),
    tie_word_embeddings=only(False, "transformers ties no weights of this family"),
)


@FAMILIES.register("nemotron_h")
class NemotronH(Decoder[CausalConfig]):
    """Nemotron-H: layers of Mamba-2, attention without rotation, feed-forward or experts."""

    schema = dataclasses.replace(SCHEMA, others=OLD)
    architecture = "NemotronHForCausalLM"
    words: ClassVar[dict[str, str]] = {
        name: field for name, field in Decoder.words.items() if name != "num_layers"
    } | {"activation": "mlp_hidden_act", "eps": "layer_norm_epsilon", "ff_bias": "mlp_bias"}
    constants: ClassVar[dict[str, Any]] = {"gated": False}
    prefix = "backbone."
    ignored = r"mtp\..*"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        kinds = _read_kinds(fields)
        mamba = _read_mamba(fields) if RECURRENT in kinds else None
        mixture = _read_mixture(fields) if MIXED in kinds else None
        width = fields["intermediate_size"]
        return {
            "num_layers": len(kinds),
            "num_kv_heads": fields["num_key_value_heads"] or fields["num_attention_heads"],
            "d_head": fields["head_dim"],
            "rope": Rope(fields["head_dim"]),
            "ropes": (None,) * len(kinds),
            "mixers": tuple(kind in (RECURRENT, FULL) for kind in kinds),
            "recurrences": tuple(mamba if kind == RECURRENT else None for kind in kinds),
            "d_ffs": tuple(width if kind == DENSE else 0 for kind in kinds),
            "mixtures": tuple(mixture if kind == MIXED else None for kind in kinds),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        kinds = zip(config.mixers, config.recurrences, config.mixtures, strict=True)
        return {
            "layers_block_type": [
                (RECURRENT if recurrence else FULL) if mixes else MIXED if mixture else DENSE
                for mixes, recurrence, mixture in kinds
            ],
            "num_key_value_heads": config.num_kv_heads,
            "head_dim": config.d_head,
            **_describe_mamba(next(filter(None, config.recurrences), None)),
            **_describe_mixture(next(filter(None, config.mixtures), None)),
        }

    def rename_tensor(self, tensor: str) -> str:
        new = "model."  # transformers' name of the part; files have the older one
        return self.prefix + tensor.removeprefix(new) if tensor.startswith(new) else tensor

    def table(self, config: Any) -> Tensors:
        mixture = next(filter(None, config.mixtures), None)
        modules = {
            **nest_modules("attention", "mixer", {w: f"{w}_proj" for w in "qkvo"}),
            **nest_modules("recurrent", "mixer", name_mamba(config)),
            **nest_modules("ff", "mixer", {w: f"{w}_proj" for w in ("up", "down")}),
            **name_experts(mixture.experts if mixture else 0, "mixer", shared="shared_experts"),
            "ff.latent_in": "mixer.fc1_latent_proj",
            "ff.latent_out": "mixer.fc2_latent_proj",
        }
        layer: Tensors = {"attention_norm": "norm", "ff_norm": "norm", **modules}
        return whole(layer, "backbone", "embeddings", norm="norm_f")


def _read_kinds(fields: Mapping[str, Any]) -> list[str]:
    """The kind of each layer; a pattern counts where there is no list.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    kinds, pattern = fields["layers_block_type"], fields["hybrid_override_pattern"]
    if kinds is None and pattern is not None:
        if not isinstance(pattern, str) or not pattern or {*pattern} - {*LETTERS}:
            raise ValueError(
                f"hybrid_override_pattern is {format_value(pattern)}; it must have one of"
                f" {' '.join(LETTERS)} for each layer"
            )
        kinds = [LETTERS[letter] for letter in pattern]
    kinds = [RECURRENT, MIXED, FULL, DENSE] if kinds is None else kinds
    layers = len(kinds) if isinstance(kinds, list) and kinds else 1
    return read_kinds(kinds, layers, (*LETTERS.values(), *OLDER), "layers_block_type")


def _read_mamba(fields: Mapping[str, Any]) -> Mamba2:
    heads, groups = fields["mamba_num_heads"], fields["n_groups"]
    if heads % groups:
        raise ValueError(f"n_groups is {groups}; it must divide mamba_num_heads, {heads}")
    return Mamba2(
        key_heads=groups,
        value_heads=heads,
        d_key=fields["ssm_state_size"],
        d_value=fields["mamba_head_dim"],
        taps=fields["conv_kernel"],
        taps_bias=fields["use_conv_bias"],
        bias=fields["use_bias"],
        activation=fields["mamba_hidden_act"],
        least_step=float(fields["time_step_min"]),
    )


def _describe_mamba(layer: Mamba2 | None) -> dict[str, Any]:
    """The fields that `_read_mamba` reads."""
    if layer is None:
        return {}
    return {
        "mamba_num_heads": layer.value_heads,
        "mamba_head_dim": layer.d_value,
        "mamba_hidden_act": layer.activation,
        "ssm_state_size": layer.d_key,
        "n_groups": layer.key_heads,
        "conv_kernel": layer.taps,
        "use_conv_bias": layer.taps_bias,
        "use_bias": layer.bias,
        "time_step_min": layer.least_step,
    }


def _read_mixture(fields: Mapping[str, Any]) -> Mixture:
    return Mixture(
        experts=fields["n_routed_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["moe_intermediate_size"],
        shared=fields["moe_shared_expert_intermediate_size"],
        shared_bias=fields["mlp_bias"],
        latent=fields["moe_latent_size"] or 0,
        scale=float(fields["routed_scaling_factor"]),
        gated=False,
        **route_by_sigmoids(fields),
    )


def _describe_mixture(mixture: Mixture | None) -> dict[str, Any]:
    """The fields that `_read_mixture` reads."""
    if mixture is None or mixture.groups is None:
        return {}
    return {
        "n_routed_experts": mixture.experts,
        "num_experts_per_tok": mixture.chosen,
        "moe_intermediate_size": mixture.d_ff,
        "moe_shared_expert_intermediate_size": mixture.shared,
        "moe_latent_size": mixture.latent or None,
        "routed_scaling_factor": mixture.scale,
        "n_group": mixture.groups.count,
        "topk_group": mixture.groups.chosen,
        "norm_topk_prob": mixture.normalized,
    }
