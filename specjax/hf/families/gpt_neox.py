"""GPT-NeoX checkpoints (GPT-NeoX-20B, Pythia) in Hugging Face's words."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import rotary
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
    number,
    rate,
    raw,
    read,
    size,
)
from specjax.models.base import Where
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS


@FAMILIES.register("gpt_neox")
class GPTNeoX(Family):
    """GPT-NeoX, Pythia: a part of each head is rotated, attention and feed-forward side by side."""

    model = Causal
    schema = Schema(
        fields=CAUSAL
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
        harmless=COMMON
        | {"attention_dropout", "classifier_dropout", "initializer_range", "is_decoder"},
        declared=declared_by("gpt_neox"),
    )
    prefix = "gpt_neox."
    output = "embed_out.weight"
    ignored = r".*\.attention\.((masked_)?bias|rotary_emb\.inv_freq)"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        width, heads = fields["hidden_size"], fields["num_attention_heads"]
        d_head = head_width(fields)
        if fields["head_dim"] not in (None, d_head):
            raise ValueError(
                f"head_dim is {fields['head_dim']}; it must be {d_head}, hidden_size over"
                " num_attention_heads"
            )
        special = special_tokens(hf, generation, fields["vocab_size"])
        return CausalConfig(
            family=hf["model_type"],
            vocab_size=fields["vocab_size"],
            d_model=width,
            d_ff=fields["intermediate_size"],
            num_layers=fields["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=heads,
            d_head=d_head,
            max_positions=fields["max_position_embeddings"],
            rope=rotary.partial_rope_from_hf(
                fields | {"rope_theta": fields["rotary_emb_base"]}, d_head, "rotary_pct"
            ),
            activation=fields["hidden_act"],
            gated=False,
            rms_norm=False,
            qkv_bias=fields["attention_bias"],
            out_bias=fields["attention_bias"],
            ff_bias=True,
            parallel=fields["use_parallel_residual"],
            tied=fields["tie_word_embeddings"],
            eps=fields["layer_norm_eps"],
            dropout=fields["hidden_dropout"],
            bos=special.bos,
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
        )

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        ends, rope = ends_to_hf(config, bos_token_id=config.bos), rotary.rope_of(config)
        shape = {
            "model_type": "gpt_neox",
            "architectures": ["GPTNeoXForCausalLM"],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "intermediate_size": config.d_ff,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "max_position_embeddings": config.max_positions,
            "hidden_act": config.activation,
            "layer_norm_eps": config.eps,
            "hidden_dropout": config.dropout,
            "use_parallel_residual": config.parallel,
            "attention_bias": config.qkv_bias,
            "rotary_pct": rotary.share_to_hf(rope.width, config.d_head),
            "rotary_emb_base": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
            "tie_word_embeddings": config.tied,
        }
        return shape | ends, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        """Where each parameter is stored; queries, keys and values lie head by head in one."""
        stored = {
            ("embedding",): Stored("gpt_neox.embed_in.weight"),
            **layer_norm(("final_norm",), "gpt_neox.final_layer_norm"),
        }
        if not config.tied:
            stored["head", "kernel"] = Stored(self.output, True)
        biased = config.qkv_bias
        for index in range(config.num_layers):
            block, layer = f"gpt_neox.layers.{index}", f"layers_{index}"
            stored |= layer_norm((layer, "attention_norm"), f"{block}.input_layernorm")
            stored |= layer_norm((layer, "ff_norm"), f"{block}.post_attention_layernorm")
            for part, w in enumerate("qkv"):
                fused = {"part": part, "parts": 3, "groups": config.num_heads}
                tensor = f"{block}.attention.query_key_value"
                stored |= linear((layer, "attention", w), tensor, biased, **fused)
            stored |= linear((layer, "attention", "o"), f"{block}.attention.dense", biased)
            stored |= linear((layer, "ff", "up"), f"{block}.mlp.dense_h_to_4h")
            stored |= linear((layer, "ff", "down"), f"{block}.mlp.dense_4h_to_h")
        return stored
