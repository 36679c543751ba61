"""GPT-2 checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Family, Stored
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
    number,
    only,
    rate,
    read,
    size,
)
from specjax.models.base import Where
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS


def _pair(where: Where, tensor: str, weight: str, part: int = 0, parts: int = 1) -> dict:
    return {
        (*where, weight): Stored(f"{tensor}.weight", part=part, parts=parts),
        (*where, "bias"): Stored(f"{tensor}.bias", part=part, parts=parts),
    }


def _query_scales(fields: Mapping[str, Any], d_head: int) -> tuple[float, ...]:
    """The scale of each layer's queries, where it falls with the layer's number."""
    if not fields["scale_attn_by_inverse_layer_idx"]:
        return ()
    first = d_head**-0.5 if fields["scale_attn_weights"] else 1.0
    return tuple(first / (layer + 1) for layer in range(fields["n_layer"]))


@FAMILIES.register("gpt2")
class GPT2(Family):
    """GPT-2: learned positions, layer norms, GELU."""

    model = Causal
    schema = Schema(
        fields=CAUSAL
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
            **ALL_FULL,
            "add_cross_attention": only(False),
        },
        aliases={
            "hidden_size": "n_embd",
            "max_position_embeddings": "n_positions",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
        },
        # Upcasting before the softmax is what every attention here does; classifiers are others'.
        harmless=COMMON
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
        declared=declared_by("gpt2"),
    )
    prefix = "transformer."
    ignored = r".*\.attn\.(masked_)?bias"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        width, heads = fields["n_embd"], fields["n_head"]
        d_head = head_width(fields, "n_embd", "n_head")
        special = special_tokens(hf, generation, fields["vocab_size"])
        return CausalConfig(
            family=hf["model_type"],
            vocab_size=fields["vocab_size"],
            d_model=width,
            d_ff=fields["n_inner"] or 4 * width,
            num_layers=fields["n_layer"],
            num_heads=heads,
            num_kv_heads=heads,
            d_head=d_head,
            max_positions=fields["n_positions"],
            query_scale=None if fields["scale_attn_weights"] else 1.0,
            query_scales=_query_scales(fields, d_head),
            activation=fields["activation_function"],
            gated=False,
            rms_norm=False,
            qkv_bias=True,
            out_bias=True,
            ff_bias=True,
            tied=fields["tie_word_embeddings"],
            eps=fields["layer_norm_epsilon"],
            dropout=fields["resid_pdrop"],
            bos=special.bos,
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = ends_to_hf(config, bos_token_id=config.bos)
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
            "scale_attn_weights": config.query_scale is None,
            "scale_attn_by_inverse_layer_idx": bool(config.query_scales),
            "layer_norm_epsilon": config.eps,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": 0.0,
            "tie_word_embeddings": config.tied,
        }
        return shape | ends, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        """Where each parameter is stored; query, key and value are one `[in, 3 out]` tensor."""
        stored = {
            ("embedding",): Stored("transformer.wte.weight"),
            ("position_embedding",): Stored("transformer.wpe.weight"),
            **_pair(("final_norm",), "transformer.ln_f", "scale"),
        }
        if not config.tied:
            stored["head", "kernel"] = Stored("lm_head.weight", True)
        for index in range(config.num_layers):
            block, layer = f"transformer.h.{index}", f"layers_{index}"
            stored |= _pair((layer, "attention_norm"), f"{block}.ln_1", "scale")
            stored |= _pair((layer, "ff_norm"), f"{block}.ln_2", "scale")
            for part, w in enumerate("qkv"):
                stored |= _pair((layer, "attention", w), f"{block}.attn.c_attn", "kernel", part, 3)
            stored |= _pair((layer, "attention", "o"), f"{block}.attn.c_proj", "kernel")
            stored |= _pair((layer, "ff", "up"), f"{block}.mlp.c_fc", "kernel")
            stored |= _pair((layer, "ff", "down"), f"{block}.mlp.c_proj", "kernel")
        return stored
