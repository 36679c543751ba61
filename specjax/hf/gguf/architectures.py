"""Tables of GGUF architectures: their keys and tensors by the names of our families."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Tensors of a layer, by their names after `blk.N.`: those after `model.layers.N.`."""

OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
"""Tensors outside of layers."""

SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
ALL_FACTORS = "rope_freqs.weight"
FACTORS = (ALL_FACTORS, SHORT_FACTORS, LONG_FACTORS)
"""Tensors that scale the rotation: they become fields of the configuration."""

_NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_AROUND = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

FIELDS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
"""Keys after the architecture's name that every file has, and the fields of `config.json`."""

OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
"""Keys that files may leave out."""

_WINDOW = {"attention.sliding_window": "sliding_window"}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """How files of one architecture differ from folders of the family that reads them."""

    model_type: str
    layer: Mapping[str, str] = dataclasses.field(default_factory=lambda: LAYER)
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)  # besides OPTIONAL
    interleaved: bool = False  # queries and keys have the two numbers of a rotated pair in turn
    offset_norms: bool = False  # norms are stored as 1 + weight
    query_scalars: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """`query_pre_attn_scalar` by the number of layers, where it is not the family's default.

    Files do not contain it; llama.cpp has it for the same models.
    """

    def fields(self) -> dict[str, Any]:
        """Every key that is read as a field."""
        return FIELDS | OPTIONAL | dict(self.optional)


_CAPS = {"final_logit_softcapping": "final_logit_softcapping"}

ARCHITECTURES = {
    "llama": Architecture("llama", interleaved=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", LAYER | _NORMED),
    "gemma2": Architecture(
        "gemma2",
        LAYER | _AROUND,
        _WINDOW | _CAPS | {"attn_logit_softcapping": "attn_logit_softcapping"},
        offset_norms=True,
        query_scalars={46: 144},
    ),
    "gemma3": Architecture(
        "gemma3_text",
        LAYER | _AROUND | _NORMED,
        _WINDOW
        | _CAPS
        | {
            "attention.sliding_window_pattern": "sliding_window_pattern",
            "rope.freq_base_swa": "rope_local_base_freq",
        },
        offset_norms=True,
        query_scalars={62: 168},
    ),
    "phi3": Architecture(
        "phi3",
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
        _WINDOW,
    ),
}
"""By `general.architecture`. Mistral's files have that of Llama."""
