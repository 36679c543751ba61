"""Families whose positions are ALiBi's biases of attention by distance: BLOOM and MPT."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import whole
from specjax.hf.families.family import Family, Stored, Tensors
from specjax.hf.families.gpt import NORMED, interleave_heads
from specjax.hf.families.schema import (
    ALL_FULL,
    CAUSAL,
    COMMON,
    MOST_LAYERS,
    ConfigDeclaration,
    Field,
    Schema,
    flag,
    head_width,
    is_number,
    number,
    rate,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.causal import Causal, CausalConfig

FIELDS: dict[str, Field] = {
    **CAUSAL,
    **ALL_FULL,
    "vocab_size": size(),
    "layer_norm_epsilon": number(1e-5),
    "tie_word_embeddings": flag(True),
}
WORDS = {"vocab_size": "vocab_size", "eps": "layer_norm_epsilon", "tied": "tie_word_embeddings"}


def list_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slope of each head (Press et al. 2022, "Train Short, Test Long", section 3).

    They are a geometric sequence of as many as the largest power of two of the heads, and for
    further heads what is halfway between its members.
    """
    first = 1 << heads.bit_length() - 1
    steps = *range(2, 2 * first + 1, 2), *range(1, 2 * (heads - first), 2)
    return tuple(2.0 ** (-4 * step / first) for step in steps)


class _AlibiDecoder(Family[CausalConfig]):
    """A decoder with layer norms and slopes, whose feed-forward is four times as wide."""

    model, shape = Causal, CausalConfig
    prefix = "transformer."

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        width, heads = self.words["d_model"], self.words["num_heads"]
        return {
            "d_ff": 4 * fields[width],
            "num_kv_heads": fields[heads],
            "d_head": head_width(fields, width, heads),
            "slopes": list_slopes(fields[heads]),
        }


@FAMILIES.register("bloom")
class Bloom(_AlibiDecoder):
    """BLOOM: slopes for positions, biases, and a norm of the embeddings."""

    schema = dataclasses.replace(
        Schema(FIELDS, COMMON, "bloom").derive(
            "bloom",
            ("attention_dropout", "classifier_dropout", "initializer_range", "pretraining_tp"),
            hidden_size=size(),
            n_layer=size(most=MOST_LAYERS),
            n_head=size(),
            hidden_dropout=rate(0.0),
        ),
        others={"n_embed": "hidden_size"},
    )
    words: ClassVar[dict[str, str]] = {
        **WORDS, "d_model": "hidden_size", "num_layers": "n_layer", "num_heads": "n_head",
        "dropout": "hidden_dropout",
    }  # fmt: skip
    constants: ClassVar[dict[str, Any]] = {
        **NORMED, "activation": "gelu_new", "embedding_norm": True, "max_positions": 2048,
        "qkv_bias": True, "out_bias": True, "ff_bias": True,
    }  # fmt: skip

    def table(self, config: Any) -> Tensors:
        layer = interleave_heads("self_attention", config.num_heads)
        return {
            **whole(layer, "transformer", "word_embeddings", "h", "ln_f"),
            "embedding_norm": "transformer.word_embeddings_layernorm",
        }


ATTENTION = Schema(
    {
        **CAUSAL,
        "clip_qkv": Field(None, "a number of at least 0", lambda one: is_number(one) and one >= 0),
        "softmax_scale": number(None),
    },
    COMMON | {"attn_impl", "attn_pdrop"},
    ConfigDeclaration(
        {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention"}
        | dict.fromkeys(("attn_uses_sequence_id", "prefix_lm", "qk_ln"), False)
    ),
)
"""Fields of MPT's `attn_config`, of which transformers reads two."""


@FAMILIES.register("mpt")
class Mpt(_AlibiDecoder):
    """MPT: slopes for positions, no biases."""

    schema = Schema(FIELDS, COMMON, "mpt").derive(
        "mpt",
        ("classifier_dropout", "emb_pdrop", "embedding_fraction", "hidden_dropout", "init_device",
         "initializer_range", "norm_type", "resid_pdrop"),
        learned_pos_emb=flag(True),  # not read
        d_model=size(),
        n_layers=size(most=MOST_LAYERS),
        n_heads=size(),
        max_seq_len=size(2048),
        attn_config=raw(),
    )  # fmt: skip
    words: ClassVar[dict[str, str]] = {
        **WORDS, "d_model": "d_model", "num_layers": "n_layers", "num_heads": "n_heads",
        "max_positions": "max_seq_len",
    }  # fmt: skip
    constants: ClassVar[dict[str, Any]] = {**NORMED, "norm_bias": False, "activation": "gelu"}
    layer: ClassVar[Tensors] = {
        "attention_norm": "norm_1",
        "ff_norm": "norm_2",
        **{f"attention.{w}": Stored("attn.Wqkv", part=i, parts=3) for i, w in enumerate("qkv")},
        "attention.o": "attn.out_proj",
        **{f"ff.{w}": f"ffn.{w}_proj" for w in ("up", "down")},
    }
    tensors = whole(layer, "transformer", "wte", "blocks", "norm_f")

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        given = fields["attn_config"]
        written = {"attn_config": {} if given is None else given}
        attention = read_object(written, "attn_config", lambda found: read(ATTENTION, found))
        clip, scale = attention["clip_qkv"] or 0.0, attention["softmax_scale"]
        return super().from_fields(fields, hf) | {"qkv_clip": float(clip), "query_scale": scale}

    def to_fields(self, config: Any) -> dict[str, Any]:
        attention = {"clip_qkv": config.qkv_clip or None, "softmax_scale": config.query_scale}
        return {"attn_config": attention}
