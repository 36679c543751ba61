"""Families of decoders with layer norms: GPT-2, GPT-NeoX and OPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.family import Family, Stored, Tensors, nest_modules
from specjax.hf.families.schema import (
    ALL_FULL,
    CAUSAL,
    COMMON,
    MOST_LAYERS,
    Schema,
    choice,
    filled_heads,
    flag,
    head_width,
    number,
    only,
    rate,
    raw,
    size,
)
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS

NORMED: dict[str, Any] = {"gated": False, "rms_norm": False}
"""Attributes of all shapes here."""


@FAMILIES.register("gpt2")
class GPT2(Family[CausalConfig]):
    """GPT-2: learned positions, layer norms, GELU."""

    model, shape = Causal, CausalConfig
    schema = Schema(
        CAUSAL
        | ALL_FULL
        | {
            "vocab_size": size(),
            "n_positions": size(),
            "n_embd": size(),
            "n_layer": size(most=MOST_LAYERS),
            "n_head": size(),
            "n_inner": size(None),
            "activation_function": choice("gelu_new", ACTIVATIONS),
            "layer_norm_epsilon": number(1e-5),
            "resid_pdrop": rate(0.1),
            "tie_word_embeddings": flag(True),
            "scale_attn_weights": flag(True),
            "scale_attn_by_inverse_layer_idx": flag(False),
            "add_cross_attention": only(False),
        },
        # Upcasting before the softmax is what every attention here does; classifiers are others'.
        COMMON
        | {
            "attn_pdrop",
            "classifier_dropout",
            "embd_pdrop",
            "hidden_dropout",
            "initializer_range",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_last_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        },
        "gpt2",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "d_ff": "n_inner",
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "max_positions": "n_positions",
        "activation": "activation_function",
        "tied": "tie_word_embeddings",
        "eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
    }
    constants: ClassVar[dict[str, Any]] = {
        **NORMED,
        "qkv_bias": True,
        "out_bias": True,
        "ff_bias": True,
    }
    architecture = "GPT2LMHeadModel"
    tensors: ClassVar[Tensors] = {
        "embedding": "transformer.wte.weight",
        "position_embedding": "transformer.wpe.weight",
        "final_norm": "transformer.ln_f",
        "head.kernel": Stored("lm_head.weight", True),
        **nest_modules(
            "layers_{}",
            "transformer.h.{}",
            {
                "attention_norm": "ln_1",
                "ff_norm": "ln_2",
                **{
                    f"attention.{w}": Stored("attn.c_attn", part=i, parts=3)
                    for i, w in enumerate("qkv")
                },
                "attention.o": "attn.c_proj",
                "ff.up": "mlp.c_fc",
                "ff.down": "mlp.c_proj",
            },
        ),
    }
    transposed = False
    prefix = "transformer."
    ignored = r".*\.attn\.(masked_)?bias"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        d_head = head_width(fields, "n_embd", "n_head")
        attributes = {
            "d_ff": fields["n_inner"] or 4 * fields["n_embd"],
            "num_kv_heads": fields["n_head"],
            "d_head": d_head,
            "query_scale": None if fields["scale_attn_weights"] else 1.0,
        }
        if fields["scale_attn_by_inverse_layer_idx"]:
            first = d_head**-0.5 if fields["scale_attn_weights"] else 1.0
            scales = (first / (layer + 1) for layer in range(fields["n_layer"]))
            attributes["query_scales"] = tuple(scales)
        return attributes

    def to_fields(self, config: Any) -> dict[str, Any]:
        return {
            "scale_attn_weights": config.query_scale is None,
            "scale_attn_by_inverse_layer_idx": bool(config.query_scales),
            "embd_pdrop": config.dropout,
            "attn_pdrop": 0.0,
        }


def interleave_heads(block: str, heads: int) -> Tensors:
    """The modules of a layer whose queries, keys and values are one tensor of `block`, by head."""
    tensor = f"{block}.query_key_value"
    return {
        "attention_norm": "input_layernorm",
        "ff_norm": "post_attention_layernorm",
        **{
            f"attention.{w}": Stored(tensor, part=i, parts=3, groups=heads)
            for i, w in enumerate("qkv")
        },
        "attention.o": f"{block}.dense",
        "ff.up": "mlp.dense_h_to_4h",
        "ff.down": "mlp.dense_4h_to_h",
    }


@FAMILIES.register("gpt_neox")
class GPTNeoX(Family[CausalConfig]):
    """GPT-NeoX, Pythia: a part of each head is rotated, attention and feed-forward side by side."""

    model, shape = Causal, CausalConfig
    schema = Schema(
        CAUSAL
        | ALL_FULL
        | {
            "vocab_size": size(),
            "hidden_size": size(),
            "intermediate_size": size(),
            "num_hidden_layers": size(most=MOST_LAYERS),
            "num_attention_heads": size(),
            "max_position_embeddings": size(2048),
            "hidden_act": choice("gelu", ACTIVATIONS),
            "layer_norm_eps": number(1e-5),
            "hidden_dropout": rate(0.0),
            "use_parallel_residual": flag(True),
            "attention_bias": flag(True),
            "tie_word_embeddings": flag(False),
            "rotary_pct": number(0.25),
            "rotary_emb_base": number(10_000.0),
            "rope_scaling": raw(),
            "rope_parameters": raw(),
            "original_max_position_embeddings": size(0),
            "head_dim": size(None),
        },
        COMMON | {"attention_dropout", "classifier_dropout", "initializer_range", "is_decoder"},
        "gpt_neox",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "max_positions": "max_position_embeddings",
        "activation": "hidden_act",
        "qkv_bias": "attention_bias",
        "out_bias": "attention_bias",
        "parallel": "use_parallel_residual",
        "tied": "tie_word_embeddings",
        "eps": "layer_norm_eps",
        "dropout": "hidden_dropout",
    }
    constants: ClassVar[dict[str, Any]] = {**NORMED, "ff_bias": True}
    architecture = "GPTNeoXForCausalLM"
    prefix = "gpt_neox."
    output = "embed_out.weight"
    ignored = r".*\.attention\.((masked_)?bias|rotary_emb\.inv_freq)"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        d_head = filled_heads(fields)
        based = fields | {"rope_theta": fields["rotary_emb_base"]}
        return {
            "num_kv_heads": fields["num_attention_heads"],
            "d_head": d_head,
            "rope": rotary.partial_rope_from_hf(based, d_head, "rotary_pct"),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        rope = rotary.get_rope(config)
        return {
            "rotary_pct": rotary.share_to_hf(rope.width, config.d_head),
            "rotary_emb_base": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
        }

    def table(self, config: Any) -> Tensors:
        layer = interleave_heads("attention", config.num_heads)
        return {
            "embedding": "gpt_neox.embed_in.weight",
            "final_norm": "gpt_neox.final_layer_norm",
            "head": "embed_out",
            **nest_modules("layers_{}", "gpt_neox.layers.{}", layer),
        }


@FAMILIES.register("opt")
class OPT(Family[CausalConfig]):
    """OPT: learned positions, layer norms, ReLU."""

    model, shape = Causal, CausalConfig
    schema = Schema(
        CAUSAL
        | ALL_FULL
        | {
            "vocab_size": size(),
            "hidden_size": size(),
            "ffn_dim": size(),
            "num_hidden_layers": size(most=MOST_LAYERS),
            "num_attention_heads": size(),
            "max_position_embeddings": size(2048),
            "word_embed_proj_dim": size(None),
            "activation_function": choice("relu", ACTIVATIONS),
            "enable_bias": flag(True),
            "dropout": rate(0.1),
            "tie_word_embeddings": flag(True),
            "do_layer_norm_before": flag(True),
            "layer_norm_elementwise_affine": only(True, "norms without scales are not supported"),
            "_remove_final_layer_norm": flag(False),
        },
        COMMON | {"attention_dropout", "init_std", "layerdrop"},
        "opt",
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "d_ff": "ffn_dim",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "max_positions": "max_position_embeddings",
        "activation": "activation_function",
        "pre_norm": "do_layer_norm_before",
        "qkv_bias": "enable_bias",
        "out_bias": "enable_bias",
        "ff_bias": "enable_bias",
        "tied": "tie_word_embeddings",
        "dropout": "dropout",
    }
    constants: ClassVar[dict[str, Any]] = {
        **NORMED,
        "position_offset": 2,  # rows of the table of positions before that of the first token
        "eps": 1e-5,  # PyTorch's default, without a field
    }
    architecture = "OPTForCausalLM"
    tensors: ClassVar[Tensors] = {
        "embedding": "model.decoder.embed_tokens.weight",
        "position_embedding": "model.decoder.embed_positions.weight",
        "final_norm": "model.decoder.final_layer_norm",
        "project_in": "model.decoder.project_in",
        "project_out": "model.decoder.project_out",
        "head": "lm_head",
        **nest_modules(
            "layers_{}",
            "model.decoder.layers.{}",
            {
                "attention_norm": "self_attn_layer_norm",
                "ff_norm": "final_layer_norm",
                **{f"attention.{w}": f"self_attn.{w}_proj" for w in "qkv"},
                "attention.o": "self_attn.out_proj",
                "ff.up": "fc1",
                "ff.down": "fc2",
            },
        ),
    }
    prefix = "model."

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        before, embedded = fields["do_layer_norm_before"], fields["word_embed_proj_dim"]
        return {
            "num_kv_heads": fields["num_attention_heads"],
            "d_head": head_width(fields),
            "residual_norm": not before,
            "final_norm": before and not fields["_remove_final_layer_norm"],
            "projected_width": None if embedded in (None, fields["hidden_size"]) else embedded,
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        return {
            "word_embed_proj_dim": config.projected_width or config.d_model,
            "_remove_final_layer_norm": config.pre_norm and not config.final_norm,
        }
