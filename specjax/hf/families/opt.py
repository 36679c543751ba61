"""OPT checkpoints in Hugging Face's words."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Family, Stored, layer_norm, linear
from specjax.hf.families.generation import GENERATION, ends_to_hf, special_tokens
from specjax.hf.families.schema import (
    ALL_FULL,
    CAUSAL,
    COMMON,
    MOST_LAYERS,
    Schema,
    choice,
    flag,
    head_width,
    only,
    rate,
    read,
    size,
)
from specjax.models.base import Where
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS

OFFSET = 2
"""Rows of the table of positions before that of the first token."""


@FAMILIES.register("opt")
class OPT(Family):
    """OPT: learned positions, layer norms, ReLU."""

    model = Causal
    schema = Schema(
        fields=CAUSAL
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
        harmless=COMMON | {"attention_dropout", "init_std", "layerdrop"},
        declared=declared_by("opt"),
    )
    prefix = "model."

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        width, heads = fields["hidden_size"], fields["num_attention_heads"]
        d_head = head_width(fields)
        before, embedded = fields["do_layer_norm_before"], fields["word_embed_proj_dim"]
        special = special_tokens(hf, generation, fields["vocab_size"])
        return CausalConfig(
            family=hf["model_type"],
            vocab_size=fields["vocab_size"],
            d_model=width,
            d_ff=fields["ffn_dim"],
            num_layers=fields["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=heads,
            d_head=d_head,
            max_positions=fields["max_position_embeddings"],
            position_offset=OFFSET,
            activation=fields["activation_function"],
            gated=False,
            rms_norm=False,
            pre_norm=before,
            residual_norm=not before,
            final_norm=before and not fields["_remove_final_layer_norm"],
            projected_width=None if embedded in (None, width) else embedded,
            qkv_bias=fields["enable_bias"],
            out_bias=fields["enable_bias"],
            ff_bias=fields["enable_bias"],
            tied=fields["tie_word_embeddings"],
            eps=1e-5,  # PyTorch's own: no field says it
            dropout=fields["dropout"],
            bos=special.bos,
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = ends_to_hf(config, bos_token_id=config.bos)
        shape = {
            "model_type": "opt",
            "architectures": ["OPTForCausalLM"],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "word_embed_proj_dim": config.projected_width or config.d_model,
            "ffn_dim": config.d_ff,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "max_position_embeddings": config.max_positions,
            "activation_function": config.activation,
            "enable_bias": config.qkv_bias,
            "do_layer_norm_before": config.pre_norm,
            "_remove_final_layer_norm": config.pre_norm and not config.final_norm,
            "dropout": config.dropout,
            "tie_word_embeddings": config.tied,
        }
        return shape | ends, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        stored: dict[Where, Stored] = {
            ("embedding",): Stored("model.decoder.embed_tokens.weight"),
            ("position_embedding",): Stored("model.decoder.embed_positions.weight"),
        }
        if config.final_norm:
            stored |= layer_norm(("final_norm",), "model.decoder.final_layer_norm")
        if config.projected_width:
            for name in ("project_in", "project_out"):
                stored |= linear((name,), f"model.decoder.{name}", biased=False)
        if not config.tied:
            stored["head", "kernel"] = Stored(self.output, True)
        for index in range(config.num_layers):
            block, layer = f"model.decoder.layers.{index}", f"layers_{index}"
            stored |= layer_norm((layer, "attention_norm"), f"{block}.self_attn_layer_norm")
            stored |= layer_norm((layer, "ff_norm"), f"{block}.final_layer_norm")
            for w in "qkvo":
                tensor = f"{block}.self_attn.{'out' if w == 'o' else w}_proj"
                stored |= linear((layer, "attention", w), tensor, config.qkv_bias)
            stored |= linear((layer, "ff", "up"), f"{block}.fc1", config.ff_bias)
            stored |= linear((layer, "ff", "down"), f"{block}.fc2", config.ff_bias)
        return stored
