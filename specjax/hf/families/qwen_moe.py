"""Qwen3-MoE: Qwen3 with mixtures of experts in all layers, or in some."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama, qwen
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Stored
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.mixtral import HARMLESS, expert_names
from specjax.hf.families.schema import Schema, flag, is_int, only, raw, read, shown, size
from specjax.models.base import Where
from specjax.models.causal import CausalConfig
from specjax.models.experts import Mixture


def _mixtures(fields: dict[str, Any]) -> tuple[Mixture | None, ...]:
    """Of each layer; every `decoder_sparse_step`-th has one, unless it is named dense."""
    layers, dense = fields["num_hidden_layers"], fields["mlp_only_layers"]
    dense = [] if dense is None else dense
    if not (isinstance(dense, list) and all(is_int(layer) for layer in dense)):
        raise ValueError(f"mlp_only_layers is {shown(dense)}; it must be a list of layers, or null")
    mixture = Mixture(
        experts=fields["num_experts"],
        chosen=fields["num_experts_per_tok"],
        d_ff=fields["moe_intermediate_size"],
        normalised=fields["norm_topk_prob"],
    )
    step = fields["decoder_sparse_step"]
    mixed = [(index + 1) % step == 0 and index not in dense for index in range(layers)]
    if not any(mixed):
        raise ValueError(
            f"decoder_sparse_step is {step} and mlp_only_layers is {shown(dense)}; one of the"
            f" {layers} layers must have experts"
        )
    return tuple(mixture if has else None for has in mixed)


@FAMILIES.register("qwen3_moe")
class Qwen3MoE(llama.Llama[CausalConfig]):
    """Qwen3 with mixtures of experts."""

    schema = Schema(
        fields=llama.FIELDS
        | {
            "num_key_value_heads": size(4),
            "max_position_embeddings": size(32_768),
            "attention_bias": flag(False),
            "use_sliding_window": flag(False),
            "sliding_window": size(None),
            "layer_types": only(None),
            "num_experts": size(128),
            "num_experts_per_tok": size(8),
            "moe_intermediate_size": size(768),
            "decoder_sparse_step": size(1),
            "mlp_only_layers": raw(),
            "norm_topk_prob": flag(False),
        },
        aliases={"num_local_experts": "num_experts"},
        harmless=HARMLESS,
        declared=declared_by("qwen3_moe"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, {"sliding_window": qwen.WINDOW} | hf, GENERATION)
        window = fields["sliding_window"] if fields["use_sliding_window"] else None
        bias = fields["attention_bias"]
        return llama.causal_config(
            fields,
            hf,
            generation,
            dtype,
            windows=(window,) * fields["num_hidden_layers"] if window else (),
            mixtures=_mixtures(fields),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=True,
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        mixture = next(mixture for mixture in config.mixtures if mixture)
        own = {
            "architectures": ["Qwen3MoeForCausalLM"],
            "use_sliding_window": bool(config.windows),
            "sliding_window": config.windows[0] if config.windows else None,
            "num_experts": mixture.experts,
            "num_experts_per_tok": mixture.chosen,
            "moe_intermediate_size": mixture.d_ff,
            "norm_topk_prob": mixture.normalised,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [i for i, has in enumerate(config.mixtures) if has is None],
        }
        return shape | own, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        words = ("gate_proj", "up_proj", "down_proj")
        return expert_names(config, super().names(config), "model.layers.{}.mlp", words)
