"""Llama checkpoints (Llama 1-3, Vicuna, TinyLlama, ...), and what its relatives share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from specjax.core.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Family, Stored, linear
from specjax.hf.families.generation import GENERATION, ends_to_hf, special_tokens
from specjax.hf.families.schema import (
    ALL_FULL,
    CAUSAL,
    COMMON,
    MOST_LAYERS,
    Field,
    Schema,
    choice,
    flag,
    head_width,
    number,
    read,
    size,
)
from specjax.models.base import Where
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.rope import Rope

FIELDS: dict[str, Field] = (
    CAUSAL
    | rotary.FIELDS
    | {
        "vocab_size": size(),
        "hidden_size": size(),
        "intermediate_size": size(),
        "num_hidden_layers": size(most=MOST_LAYERS),
        "num_attention_heads": size(),
        "num_key_value_heads": size(None),
        "head_dim": size(None),
        "max_position_embeddings": size(2048),
        "hidden_act": choice("silu", ACTIVATIONS),
        "rms_norm_eps": number(1e-6),
        "tie_word_embeddings": flag(False),
    }
)
"""Fields of Llama and its relatives, with Llama's defaults."""

HARMLESS = COMMON | {"attention_dropout", "initializer_range"}
"""Declared fields of Llama's relatives that change no token."""


Shape = TypeVar("Shape", bound=CausalConfig)


def d_head_of(fields: Mapping[str, Any]) -> int:
    """The width of a head."""
    return fields["head_dim"] or fields["hidden_size"] // fields["num_attention_heads"]


def causal_config(
    fields: dict[str, Any],
    hf: dict[str, Any],
    generation: dict[str, Any] | None,
    dtype: Any,
    rope: Rope | None = None,
    **changes: Any,
) -> CausalConfig:
    """The shape that the checked `fields` describe, with a relative's `changes`.

    Its `rope` is that of whole heads where none is given.
    """
    heads, d_head = fields["num_attention_heads"], d_head_of(fields)
    special = special_tokens(hf, generation, fields["vocab_size"])
    return CausalConfig(
        family=hf["model_type"],
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        d_ff=fields["intermediate_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=fields["num_key_value_heads"] or heads,
        d_head=d_head,
        max_positions=fields["max_position_embeddings"],
        rope=rope or rotary.rope_from_hf(fields, d_head),
        activation=fields["hidden_act"],
        tied=fields["tie_word_embeddings"],
        eps=fields["rms_norm_eps"],
        bos=special.bos,
        eos=special.eos,
        pad=special.pad,
        dtype=dtype,
        **changes,
    )


def layer_names(config: CausalConfig, layer: str, block: str) -> dict[Where, Stored]:
    """Where the parameters of a layer are stored, of tensors whose names begin with `block`."""
    norms = _norm_names(config).items()
    stored = {(layer, norm, "scale"): Stored(f"{block}.{name}.weight") for norm, name in norms}
    for w in "qkvo":
        biased = config.out_bias if w == "o" else config.qkv_bias
        stored |= linear((layer, "attention", w), f"{block}.self_attn.{w}_proj", biased)
    for w in ("gate", "up", "down"):
        stored |= linear((layer, "ff", w), f"{block}.mlp.{w}_proj", config.ff_bias)
    if config.qk_norm or config.wide_qk_norm:
        for w in "qk":
            where = (layer, "attention", f"{w}_norm", "scale")
            stored[where] = Stored(f"{block}.self_attn.{w}_norm.weight")
    return stored


def _norm_names(config: CausalConfig) -> dict[str, str]:
    """The checkpoint's names of a layer's norms; where there are more, one name moves."""
    if not config.post_norm:
        return {"attention_norm": "input_layernorm", "ff_norm": "post_attention_layernorm"}
    before = {"attention_norm": "input_layernorm", "ff_norm": "pre_feedforward_layernorm"}
    behind = {
        "attention_post_norm": "post_attention_layernorm",
        "ff_post_norm": "post_feedforward_layernorm",
    }
    return (before if config.pre_norm else {}) | behind


@FAMILIES.register("llama")
class Llama(Family, Generic[Shape]):
    """Llama 1-3, Vicuna, TinyLlama: rotary positions, grouped-query attention."""

    model = Causal
    schema = Schema(
        fields=FIELDS
        | {
            "attention_bias": flag(False),
            "mlp_bias": flag(False),
            **ALL_FULL,
        },
        harmless=HARMLESS | {"pretraining_tp"},
        declared=declared_by("llama"),
    )
    prefix = "model."
    ignored = r".*rotary_emb\.inv_freq"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        head_width(fields)  # it must divide, even where `head_dim` is another
        biases = {
            "qkv_bias": fields["attention_bias"],
            "out_bias": fields["attention_bias"],
            "ff_bias": fields["mlp_bias"],
        }
        return causal_config(fields, hf, generation, dtype, **biases)

    def config_to_hf(self, config: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
        ends, rope = ends_to_hf(config, bos_token_id=config.bos), rotary.rope_of(config)
        shape = {
            "model_type": config.family,
            "architectures": [f"{config.family.capitalize()}ForCausalLM"],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "intermediate_size": config.d_ff,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.num_kv_heads,
            "head_dim": config.d_head,
            "max_position_embeddings": config.max_positions,
            "hidden_act": config.activation,
            "rms_norm_eps": config.eps,
            "rope_theta": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
            "tie_word_embeddings": config.tied,
        }
        biases = {"attention_bias": config.qkv_bias, "mlp_bias": config.ff_bias}
        shape |= {name: value for name, value in biases.items() if name in self.schema.fields}
        return shape | ends, ends

    def names(self, config: Shape) -> dict[Where, Stored]:
        stored: dict[Where, Stored] = {
            ("embedding",): Stored("model.embed_tokens.weight"),
            ("final_norm", "scale"): Stored("model.norm.weight"),
        }
        if not config.tied:
            stored["head", "kernel"] = Stored("lm_head.weight", True)
        for index in range(config.num_layers):
            stored |= layer_names(config, f"layers_{index}", f"model.layers.{index}")
        return stored
