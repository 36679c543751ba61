"""GPT-2 checkpoints in Hugging Face's words."""

from __future__ import annotations

from typing import Any

from specjax.models.causal import Causal, CausalConfig
from specjax.models.families.family import Family, Stored, Where, eos_of, eos_to_hf, positive

_UNSUPPORTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any], dtype: Any) -> CausalConfig:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    positive(hf, "vocab_size", "n_embd", "n_layer", "n_head", "n_positions")
    for field, needed in _UNSUPPORTED.items():
        if hf.get(field, needed) != needed:
            raise ValueError(f"{field} is {hf[field]!r}; only {needed!r} is supported")
    eos = eos_of(hf, generation)
    pad = hf.get("pad_token_id")
    return CausalConfig(
        family=hf["model_type"],
        vocab_size=hf["vocab_size"],
        d_model=hf["n_embd"],
        d_ff=hf.get("n_inner") or 4 * hf["n_embd"],
        num_layers=hf["n_layer"],
        num_heads=hf["n_head"],
        num_kv_heads=hf["n_head"],
        d_head=hf["n_embd"] // hf["n_head"],
        max_positions=hf["n_positions"],
        activation=hf.get("activation_function", "gelu_new"),
        gated=False,
        rms_norm=False,
        qkv_bias=True,
        out_bias=True,
        ff_bias=True,
        tied=hf.get("tie_word_embeddings", True),
        eps=hf.get("layer_norm_epsilon", 1e-5),
        dropout=hf.get("resid_pdrop", 0.0),
        bos=hf.get("bos_token_id"),
        eos=eos,
        pad=pad if pad is not None else eos[0] if eos else 0,
        dtype=dtype,
    )


def config_to_hf(config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    ends = {
        "bos_token_id": config.bos,
        "eos_token_id": eos_to_hf(config.eos),
        "pad_token_id": config.pad,
    }
    shape = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_inner": config.d_ff,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_positions": config.max_positions,
        "activation_function": config.activation,
        "layer_norm_epsilon": config.eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": config.tied,
    }
    return shape | ends, ends


def names(config: CausalConfig) -> dict[Where, Stored]:
    """Where each parameter is stored; query, key and value are one `[in, 3 out]` tensor."""
    found = {
        ("embedding",): Stored("transformer.wte.weight"),
        ("position_embedding",): Stored("transformer.wpe.weight"),
        **_pair(("final_norm",), "transformer.ln_f", "scale"),
    }
    if not config.tied:
        found["head", "kernel"] = Stored("lm_head.weight", True)
    for index in range(config.num_layers):
        block, layer = f"transformer.h.{index}", f"layers_{index}"
        found |= _pair((layer, "attention_norm"), f"{block}.ln_1", "scale")
        found |= _pair((layer, "ff_norm"), f"{block}.ln_2", "scale")
        for part, w in enumerate("qkv"):
            found |= _pair((layer, "attention", w), f"{block}.attn.c_attn", "kernel", part, 3)
        found |= _pair((layer, "attention", "o"), f"{block}.attn.c_proj", "kernel")
        found |= _pair((layer, "ff", "up"), f"{block}.mlp.c_fc", "kernel")
        found |= _pair((layer, "ff", "down"), f"{block}.mlp.c_proj", "kernel")
    return found


def _pair(where: Where, tensor: str, weight: str, part: int = 0, parts: int = 1) -> dict:
    return {
        (*where, weight): Stored(f"{tensor}.weight", part=part, parts=parts),
        (*where, "bias"): Stored(f"{tensor}.bias", part=part, parts=parts),
    }


FAMILY = Family(
    Causal,
    config_from_hf,
    config_to_hf,
    names,
    prefix="transformer.",
    ignored=r".*\.attn\.(masked_)?bias",
)
