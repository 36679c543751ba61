"""DeepSeek-V2 and V3: latent attention, and mixtures after some dense layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.mixtures import (
    DEEPSEEK,
    describe_last_layers,
    mix_last_layers,
    name_experts,
    route_by_sigmoids,
)
from specjax.hf.families.schema import (
    ALL_FULL,
    Field,
    choice,
    flag,
    format_value,
    only,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.experts import Groups
from specjax.models.latent_attention import Latent

LATENT: dict[str, Field] = {
    "kv_lora_rank": size(512),
    "q_lora_rank": size(None),
    "qk_nope_head_dim": size(128),
    "qk_rope_head_dim": size(64),
    "v_head_dim": size(128),
}
"""Fields of latent attention."""

GREEDY = ("greedy", "group_limited_greedy")
"""How DeepSeek-V2 selects experts: among all, or within the best groups."""

QUERY_RANK: Tensors = {
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q": "self_attn.q_b_proj",
}
"""Modules of queries that have a latent vector."""


class _DeepSeek(Decoder[CausalConfig]):
    """A decoder with latent attention."""

    def shape_latent(self, fields: Mapping[str, Any]) -> Latent:
        """The shape of latent attention, of checked `fields`."""
        return Latent(
            rank=fields["kv_lora_rank"],
            rotated=fields["qk_rope_head_dim"],
            plain=fields["qk_nope_head_dim"],
            value=fields["v_head_dim"],
            query_rank=fields["q_lora_rank"],
            stretch=_read_stretch(fields),
        )

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """One key head, as wide as the latent vector and the rotated part."""
        _check_heads(fields)
        rope = self.rope(fields, fields["qk_rope_head_dim"])
        rope = dataclasses.replace(rope, interleaved=fields.get("rope_interleave", True))
        latent = self.shape_latent(fields)
        stretch = rotary.compute_yarn_scale(rope.factor, latent.stretch)
        return {
            "num_kv_heads": 1,
            "d_head": latent.key_width,
            "latent": latent,
            "rope": rope,
            "query_scale": (latent.plain + latent.rotated) ** -0.5 * stretch**2,
            "qkv_bias": fields["attention_bias"],
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        latent = config.latent
        fields = super().to_fields(config) | describe_last_layers(config)
        if latent.stretch:
            fields["rope_scaling"] |= {"mscale_all_dim": latent.stretch}
        return fields | {
            "num_key_value_heads": config.num_heads,
            "head_dim": latent.rotated,
            "kv_lora_rank": latent.rank,
            "q_lora_rank": latent.query_rank,
            "qk_nope_head_dim": latent.plain,
            "qk_rope_head_dim": latent.rotated,
            "v_head_dim": latent.value,
        }

    def table(self, config: Any) -> Tensors:
        latent, mixture = config.latent, next(filter(None, config.mixtures))
        inner = latent.plain + latent.value
        up = Stored("self_attn.kv_b_proj.weight", True, parts=inner, groups=config.num_heads)
        return whole(
            {
                **LAYER,
                **name_experts(mixture.experts, shared="shared_experts"),
                "attention.q": "self_attn.q_proj",
                **(QUERY_RANK if latent.query_rank is not None else {}),
                "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
                "attention.kv_norm": "self_attn.kv_a_layernorm",
                "attention.k_up": dataclasses.replace(up, spans=latent.plain),
                "attention.v_up": dataclasses.replace(up, part=latent.plain, spans=latent.value),
            }
        )


@FAMILIES.register("deepseek_v2")
class DeepSeekV2(_DeepSeek):
    """DeepSeek-V2 and V2-Lite: latent attention, shared experts, groups by their best expert."""

    schema = Decoder.schema.derive(
        "deepseek_v2",
        ("output_router_logits", "pretraining_tp"),
        **BIAS,
        **ALL_FULL,
        **DEEPSEEK
        | LATENT
        | {"n_group": size(None), "topk_group": size(None), "num_experts_per_tok": size()}
        | {"norm_topk_prob": only(False, "transformers declares the field and ignores it")},
        mlp_bias=only(False, "experts with biases are not supported"),
        topk_method=choice("greedy", GREEDY),
    )
    architecture = "DeepseekV2ForCausalLM"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        groups = None
        if fields["topk_method"] == GREEDY[1]:
            for name in ("n_group", "topk_group"):
                if fields[name] is None:
                    raise ValueError(f"{name} is null; topk_method {GREEDY[1]!r} needs a number")
            groups = Groups(fields["n_group"], fields["topk_group"], summed=1)
        mixtures = mix_last_layers(fields, normalized=False, groups=groups)
        return super().from_fields(fields, hf) | {"mixtures": mixtures}

    def to_fields(self, config: Any) -> dict[str, Any]:
        grouped = any(mixture and mixture.groups for mixture in config.mixtures)
        return super().to_fields(config) | {"topk_method": GREEDY[grouped]}


@FAMILIES.register("deepseek_v3")
class DeepSeekV3(_DeepSeek):
    """DeepSeek-V3 and R1: latent attention, sigmoids and a correction select experts."""

    schema = Decoder.schema.derive(
        "deepseek_v3",
        ("output_router_logits", "pretraining_tp"),
        **BIAS,
        **ALL_FULL,
        **DEEPSEEK | LATENT,
        rope_interleave=flag(True),
        num_mtp_layers=size(1, least=0),
    )
    architecture = "DeepseekV3ForCausalLM"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        mixtures = mix_last_layers(fields, **route_by_sigmoids(fields))
        return super().from_fields(fields, hf) | {"mixtures": mixtures}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {
            "rope_interleave": config.rope.interleaved,
            "num_nextn_predict_layers": 0,
        }


def _read_stretch(fields: Mapping[str, Any]) -> float:
    """YaRN's `mscale_all_dim`, which scales all scores; 0 without it."""
    name, written = rotary.find_scaling(fields)
    kind, stretch = written.get("rope_type", written.get("type")), written.get("mscale_all_dim")
    if kind != "yarn" and stretch:
        raise ValueError(
            f"{name} {format_value(written)}: mscale_all_dim is {format_value(stretch)}; it is read"
            " of rope_type 'yarn' only"
        )
    return float(stretch or 0.0)


def _check_heads(fields: Mapping[str, Any]) -> None:
    """Refuses other numbers of key heads than transformers can expand, and other head widths."""
    allowed = {
        "num_key_value_heads": "num_attention_heads",
        "head_dim": "qk_rope_head_dim",
    }
    for name, other in allowed.items():
        if fields[name] not in (None, fields[other]):
            raise ValueError(
                f"{name} is {format_value(fields[name])}; with latent attention it must be"
                f" {other}, {fields[other]}"
            )
