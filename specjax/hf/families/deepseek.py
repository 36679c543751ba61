"""DeepSeek-V2, V3 and Mistral 4: latent attention, and mixtures after some dense layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.mistral import GROWTH, join_growth, split_growth
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
    is_number,
    only,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.experts import Groups
from specjax.models.latent_attention import Latent
from specjax.models.positions import Temperature

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

PACKED: Tensors = {
    "ff.gates": Stored("mlp.experts.gate_up_proj", True, parts=2, batched=True),
    "ff.ups": Stored("mlp.experts.gate_up_proj", True, 1, 2, batched=True),
    "ff.downs": Stored("mlp.experts.down_proj", True, batched=True),
}
"""Modules of a mixture whose experts are in two tensors."""

QUERY_RANK: Tensors = {
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q": "self_attn.q_b_proj",
}
"""Modules of queries that have a latent vector."""


class _DeepSeek(Decoder[CausalConfig]):
    """A decoder with latent attention."""

    head_parts: ClassVar[tuple[str, ...]] = ("qk_rope_head_dim",)
    """Fields that `head_dim` is the sum of."""

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
        _check_heads(fields, self.head_parts)
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


@FAMILIES.register("mistral4")
class Mistral4(_DeepSeek):
    """Mistral 4: DeepSeek-V3 with a softmax of experts, and queries that grow as Ministral 3's."""

    schema = DeepSeekV3.schema.without("num_mtp_layers").derive("mistral4")
    architecture = "Mistral4ForCausalLM"
    head_parts = ("qk_nope_head_dim", "qk_rope_head_dim")
    unsaid: ClassVar[dict[str, Any]] = {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 128.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, GROWTH: 0.1,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    """The rotation where the configuration has none."""

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        plain, growth = split_growth(_drop_share(fields), self.unsaid)
        attributes = super().from_fields(plain, hf)
        groups = Groups(fields["n_group"], fields["topk_group"], summed=2)
        chosen = {"groups": groups, "normalized": fields["norm_topk_prob"]}
        return attributes | {
            "mixtures": mix_last_layers(fields, **chosen),
            "temperature": Temperature(growth, attributes["rope"].original),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, latent = super().to_fields(config), config.latent
        width = {"head_dim": latent.plain + latent.rotated}
        turns = {"rope_interleave": config.rope.interleaved}
        return join_growth(fields, config) | width | turns

    def table(self, config: Any) -> Tensors:
        return {**super().table(config), **nest_modules("layers_{}", "model.layers.{}", PACKED)}


def _drop_share(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without the rotated share of a head, which is that of `qk_rope_head_dim`."""
    name, written = rotary.find_scaling(fields)
    rotated = fields["qk_rope_head_dim"]
    width = fields["qk_nope_head_dim"] + rotated
    share = written.get(rotary.SHARE, rotary.share_to_hf(rotated, width))
    if not is_number(share) or int(width * share) != rotated:
        raise ValueError(
            f"{name} {format_value(written)}: {rotary.SHARE} is {format_value(share)}; it must"
            f" rotate qk_rope_head_dim, {rotated}, of the {width} numbers of a head"
        )
    plain = {word: value for word, value in written.items() if word != rotary.SHARE}
    return {**fields, name: None if fields[name] is None else plain}


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


def _check_heads(fields: Mapping[str, Any], head_parts: Sequence[str]) -> None:
    """Refuses other numbers of key heads than transformers can expand, and other head widths."""
    allowed = {"num_key_value_heads": ("num_attention_heads",), "head_dim": head_parts}
    for name, others in allowed.items():
        needed = sum(fields[other] for other in others)
        if fields[name] not in (None, needed):
            raise ValueError(
                f"{name} is {format_value(fields[name])}; with latent attention it must be"
                f" {' plus '.join(others)}, {needed}"
            )
