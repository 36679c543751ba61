"""Llama checkpoints (Llama 1-3, Vicuna, TinyLlama, ...), and what its relatives share with it."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.models.causal import Causal, CausalConfig
from specjax.models.families.family import Family, Stored, Where, eos_of, eos_to_hf, positive
from specjax.models.layers import ACTIVATIONS
from specjax.models.rope import Rope


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any], dtype: Any) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    positive(hf, *sizes, "num_attention_heads")
    activation = hf.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"hidden_act is {activation!r}; known are {', '.join(ACTIVATIONS)}")
    d_head = hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]
    eos, pad = eos_of(hf, generation), hf.get("pad_token_id")
    return CausalConfig(
        family=hf["model_type"],
        vocab_size=hf["vocab_size"],
        d_model=hf["hidden_size"],
        d_ff=hf["intermediate_size"],
        num_layers=hf["num_hidden_layers"],
        num_heads=hf["num_attention_heads"],
        num_kv_heads=hf.get("num_key_value_heads") or hf["num_attention_heads"],
        d_head=d_head,
        max_positions=hf.get("max_position_embeddings", 2048),
        rope=rope_from_hf(hf, d_head),
        activation=activation,
        qkv_bias=hf.get("attention_bias", False),
        out_bias=hf.get("attention_bias", False),
        ff_bias=hf.get("mlp_bias", False),
        tied=hf.get("tie_word_embeddings", False),
        eps=hf.get("rms_norm_eps", 1e-6),
        bos=hf.get("bos_token_id"),
        eos=eos,
        # Many have no padding token; padding is masked, so any id serves.
        pad=pad if pad is not None and pad >= 0 else eos[0] if eos else 0,
        dtype=dtype,
    )


def rope_from_hf(hf: dict[str, Any], d_head: int) -> Rope:
    """The rotation; transformers 4 spells it `rope_theta` and `rope_scaling`."""
    found = {**(hf.get("rope_scaling") or {}), **(hf.get("rope_parameters") or {})}
    if found.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor must be 1; partial rotation is not supported")
    kind = found.get("rope_type", found.get("type", "default"))
    trained = hf.get("max_position_embeddings", 2048)
    if kind == "llama3":
        trained = found["original_max_position_embeddings"]
    return Rope(
        width=d_head,
        theta=float(found.get("rope_theta", hf.get("rope_theta", 10_000.0))),
        kind=kind,
        factor=float(found.get("factor", 1.0)),
        original=trained,
        low=float(found.get("low_freq_factor", 1.0)),
        high=float(found.get("high_freq_factor", 4.0)),
    )


def config_to_hf(config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    ends = {
        "bos_token_id": config.bos,
        "eos_token_id": eos_to_hf(config.eos),
        "pad_token_id": config.pad,
    }
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
        "rope_theta": config.rope.theta,
        "rope_scaling": rope_to_hf(config.rope),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.ff_bias,
        "tie_word_embeddings": config.tied,
    }
    return shape | ends, ends


def rope_to_hf(rope: Rope) -> dict[str, Any] | None:
    """`rope_scaling`, which transformers 4 and 5 both read."""
    if rope.kind == "default":
        return None
    scaling: dict[str, Any] = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {
            "low_freq_factor": rope.low,
            "high_freq_factor": rope.high,
            "original_max_position_embeddings": rope.original,
        }
    return scaling


def names(config: CausalConfig) -> dict[Where, Stored]:
    """Where each parameter is stored."""
    found = {
        ("embedding",): Stored("model.embed_tokens.weight"),
        ("final_norm", "scale"): Stored("model.norm.weight"),
    }
    if not config.tied:
        found["head", "kernel"] = Stored("lm_head.weight", True)
    for index in range(config.num_layers):
        found |= _layer(config, f"layers_{index}", f"model.layers.{index}")
    return found


def _layer(config: CausalConfig, layer: str, block: str) -> dict[Where, Stored]:
    found = {
        (layer, "attention_norm", "scale"): Stored(f"{block}.input_layernorm.weight"),
        (layer, "ff_norm", "scale"): Stored(f"{block}.post_attention_layernorm.weight"),
    }
    for w in "qkvo":
        biased = config.out_bias if w == "o" else config.qkv_bias
        found |= _linear((layer, "attention", w), f"{block}.self_attn.{w}_proj", biased)
    for w in ("gate", "up", "down"):
        found |= _linear((layer, "ff", w), f"{block}.mlp.{w}_proj", config.ff_bias)
    if config.qk_norm:
        for w in "qk":
            where = (layer, "attention", f"{w}_norm", "scale")
            found[where] = Stored(f"{block}.self_attn.{w}_norm.weight")
    return found


def _linear(where: Where, tensor: str, biased: bool) -> dict[Where, Stored]:
    found = {(*where, "kernel"): Stored(f"{tensor}.weight", transposed=True)}
    if biased:
        found[*where, "bias"] = Stored(f"{tensor}.bias")
    return found


FAMILY = Family(
    Causal,
    config_from_hf,
    config_to_hf,
    names,
    prefix="model.",
    ignored=r".*rotary_emb\.inv_freq",
)


def relative(**changes: Any) -> Family:
    """A family that differs from Llama in some of `Family`'s functions."""
    return dataclasses.replace(FAMILY, **changes)
