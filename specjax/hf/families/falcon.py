"""Falcon: heads side by side in one tensor, attention and feed-forward side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.schema import (
    ALL_FULL,
    choice,
    filled_heads,
    flag,
    format_value,
    number,
    only,
    raw,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.layers import ACTIVATIONS


@FAMILIES.register("falcon")
class Falcon(Decoder[CausalConfig]):
    """Falcon with rotary positions, of the layout of 7B, of 40B, or with sublayers in turn."""

    schema = dataclasses.replace(
        Decoder.schema.without(
            "hidden_act", "rms_norm_eps", "intermediate_size", "num_key_value_heads"
        ).derive(
            "falcon",
            ("classifier_dropout", "hidden_dropout"),
            **ALL_FULL,
            activation=choice("gelu", ACTIVATIONS),
            layer_norm_epsilon=number(1e-5),
            ffn_hidden_size=size(None),
            num_kv_heads=size(None),
            num_ln_in_parallel_attn=raw(),
            new_decoder_architecture=flag(False),
            multi_query=flag(True),
            parallel_attn=flag(True),
            bias=flag(False),
            alibi=only(False, "biases that are rounded to bfloat16 are not supported"),
            tie_word_embeddings=flag(True),
        ),
        others={"n_embed": "hidden_size"},
    )
    words: ClassVar[dict[str, str]] = {
        attribute: field for attribute, field in Decoder.words.items() if attribute != "d_ff"
    } | {"activation": "activation", "eps": "layer_norm_epsilon"}
    constants: ClassVar[dict[str, Any]] = {"rms_norm": False, "gated": False}
    prefix = "transformer."

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        d_head, bias = filled_heads(fields), fields["bias"]
        parallel, norms = _read_layout(fields)
        return {
            "num_kv_heads": _count_kv_heads(fields),
            "d_head": d_head,
            "d_ff": fields["ffn_hidden_size"] or 4 * fields["hidden_size"],
            "rope": rotary.rope_from_hf(fields, d_head),
            "qkv_bias": bias,
            "out_bias": bias,
            "ff_bias": bias,
            "parallel": parallel,
            "shared_norm": parallel and norms == 1,
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        """The older layout where it has such heads and norms, as 7B; else the newer one."""
        rope, ungrouped = rotary.get_rope(config), config.num_kv_heads in (1, config.num_heads)
        new = config.parallel and not (config.shared_norm and ungrouped)
        return {
            "ffn_hidden_size": config.d_ff,
            "num_kv_heads": config.num_kv_heads,
            "rope_theta": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
            "new_decoder_architecture": new,
            "num_ln_in_parallel_attn": 2 - config.shared_norm if new else None,
            "multi_query": config.num_kv_heads == 1,
            "parallel_attn": config.parallel,
            "bias": config.qkv_bias,
        }

    def table(self, config: Any) -> Tensors:
        """Queries, and the key and the value that they share, are one group in the tensor."""
        spans = config.num_heads // config.num_kv_heads
        groups = {"parts": spans + 2, "groups": config.num_kv_heads}
        qkv = "self_attention.query_key_value"
        first, second = "input_layernorm", "post_attention_layernorm"
        if config.parallel and not config.shared_norm:
            first, second = "ln_attn", "ln_mlp"
        layer: Tensors = {
            "attention_norm": first,
            "ff_norm": second,
            "attention.q": Stored(qkv, spans=spans, **groups),
            "attention.k": Stored(qkv, part=spans, **groups),
            "attention.v": Stored(qkv, part=spans + 1, **groups),
            "attention.o": "self_attention.dense",
            "ff.up": "mlp.dense_h_to_4h",
            "ff.down": "mlp.dense_4h_to_h",
        }
        return whole(layer, "transformer", "word_embeddings", "h", "ln_f")


def _count_kv_heads(fields: Mapping[str, Any]) -> int:
    """Key and value heads: the old layout has one for all queries, or one for each."""
    heads, given = fields["num_attention_heads"], fields["num_kv_heads"]
    if not fields["new_decoder_architecture"] and fields["multi_query"]:
        return 1
    count = heads if given is None else given
    if not fields["new_decoder_architecture"] and count != heads:
        raise ValueError(
            f"num_kv_heads is {count}; without multi_query and new_decoder_architecture it must be"
            f" num_attention_heads, {heads}"
        )
    return count


def _read_layout(fields: Mapping[str, Any]) -> tuple[bool, int]:
    """Whether sublayers are side by side, and how many norms are before them."""
    new, parallel = fields["new_decoder_architecture"], fields["parallel_attn"]
    if new and not parallel:
        raise ValueError("parallel_attn is False; with new_decoder_architecture it must be true")
    usual = 2 if new else 1
    norms = fields["num_ln_in_parallel_attn"]
    norms = usual if norms is None else norms
    if parallel and (norms not in ((1, 2) if new else (1,)) or isinstance(norms, bool)):
        raise ValueError(
            f"num_ln_in_parallel_attn is {format_value(norms)}; it must be {'1 or 2' if new else 1}"
        )
    return parallel, norms
