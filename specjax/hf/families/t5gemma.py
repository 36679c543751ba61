"""T5Gemma checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.family import Family, Shape, Tensors, nest_modules
from specjax.hf.families.generation import (
    GENERATION,
    ends_to_hf,
    read_decoder_tokens,
)
from specjax.hf.families.layer_types import KINDS, WINDOWS, every, windows_of
from specjax.hf.families.schema import (
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    number,
    only,
    rate,
    raw,
    read,
    read_object,
    size,
)
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig

SPECIAL = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
"""Default special tokens of a decoder."""

STACK = Schema(
    SHARED
    | rotary.FIELDS
    | WINDOWS
    | {
        "vocab_size": size(),
        "hidden_size": size(),
        "intermediate_size": size(),
        "num_hidden_layers": size(most=MOST_LAYERS),
        "num_attention_heads": size(),
        "num_key_value_heads": size(4),
        "head_dim": size(256),
        "hidden_activation": choice("gelu_pytorch_tanh", ACTIVATIONS),
        "max_position_embeddings": size(8192),
        "rms_norm_eps": number(1e-6),
        "attention_bias": flag(False),
        "query_pre_attn_scalar": number(256.0),
        "attn_logit_softcapping": number(None),
        "final_logit_softcapping": number(None),
    },
    # Hugging Face overwrites dropout and the encoder's width of a side by those of the whole.
    COMMON
    | {
        "attention_dropout",
        "cross_attention_hidden_size",
        "dropout_rate",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "tie_word_embeddings",
    },
    "t5_gemma_module",
)
"""Fields of the encoder and of the decoder: those of Gemma 2."""

SCALINGS = ("default", "linear", "llama3", "yarn")
"""Rotations that do not depend on how long a text is."""


WORDS = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "d_head": "head_dim",
    "activation": "hidden_activation",
    "bias": "attention_bias",
    "eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
}
"""Attributes of a side, and the fields that hold them as they are."""


def stack_from_hf(fields: dict[str, Any], full_every: int = 2, **more: Any) -> Stack:
    """The shape of a side's checked `fields`; every `period`-th layer has full attention."""
    rope = rotary.rope_from_hf(fields, fields["head_dim"])
    if rope.kind not in SCALINGS:
        raise ValueError(f"rope_type is {rope.kind!r}; it must be one of {', '.join(SCALINGS)}")
    slides = every(full_every, fields)
    return Stack(
        **{attribute: fields[field] for attribute, field in WORDS.items()},
        rope=rope,
        windows=windows_of(fields, slides) or (0,) * len(slides),
        query_scalar=float(fields["query_pre_attn_scalar"]),
        softcap=float(fields["attn_logit_softcapping"] or 0.0),
        **more,
    )


def stack_to_hf(config: T5GemmaConfig, stack: Stack) -> dict[str, Any]:
    """The fields of a side."""
    return {field: getattr(stack, attribute) for attribute, field in WORDS.items()} | {
        "model_type": "t5_gemma_module",
        "vocab_size": config.vocab_size,
        "rope_theta": stack.rope.theta,
        "rope_scaling": rotary.rope_to_hf(stack.rope),
        "query_pre_attn_scalar": _whole(stack.query_scalar),
        "attn_logit_softcapping": stack.softcap or None,
        "final_logit_softcapping": config.logit_cap or None,
        "sliding_window": max(stack.windows) or WINDOW,
        "layer_types": [KINDS[window > 0] for window in stack.windows],
        "dropout_rate": config.dropout,
    }


WINDOW = 4096
"""Of an export no layer of which slides; transformers makes a mask with it all the same."""


def _whole(value: float) -> int | float:
    """Hugging Face reads whole numbers only as such."""
    return int(value) if value == int(value) else value


def _side(side: str, kinds: Mapping[str, str]) -> Tensors:
    """The modules of an encoder or a decoder, whose kinds of attention are ours -> theirs."""
    layer = {f"ff.{w}": f"mlp.{w}_proj" for w in ("gate", "up", "down")}
    for ours, theirs in {**kinds, "ff": "feedforward"}.items():
        for place, here in (("pre", "before"), ("post", "behind")):
            layer[f"{ours}_norm.{here}"] = f"{place}_{theirs}_layernorm"
    for ours, theirs in kinds.items():
        layer |= {f"{ours}_attention.{w}": f"{theirs}.{w}_proj" for w in "qkvo"}
        layer |= {f"{ours}_attention.{w}_norm": f"{theirs}.{w}_norm" for w in "qk"}
    return {
        f"{side}_norm": f"model.{side}.norm",
        **nest_modules(f"{side}_{{}}", f"model.{side}.layers.{{}}", layer),
    }


class T5GemmaLike(Family[Shape]):
    """T5Gemma and its relative: an encoder and a decoder of Gemma's blocks."""

    model = T5Gemma
    schema = Schema(
        SHARED
        | {
            "encoder": raw(),
            "decoder": raw(),
            "dropout_rate": rate(0.0),
            "tie_word_embeddings": flag(True),
            "is_encoder_decoder": only(True),
        },
        COMMON
        | {
            "attention_dropout",
            "classifier_dropout_rate",
            "initializer_range",
            "vocab_size",
        },
        "t5gemma",
    )
    words: ClassVar[dict[str, str]] = {"tied": "tie_word_embeddings", "dropout": "dropout_rate"}
    prefix = "model."
    output = "lm_head.out_proj.weight"
    architecture = "T5GemmaForConditionalGeneration"
    tensors: ClassVar[Tensors] = {
        "embedding": "model.decoder.embed_tokens.weight",
        "source_embedding": "model.encoder.embed_tokens.weight",
        "head": "lm_head.out_proj",
        **_side("encoder", {"self": "self_attn"}),
        **_side("decoder", {"self": "self_attn", "cross": "cross_attn"}),
    }

    def stack(self, written: dict[str, Any]) -> tuple[dict[str, Any], Stack]:
        """The checked fields of a side, and the shape that they describe."""
        fields = read(STACK, written, GENERATION)
        return fields, stack_from_hf(fields)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Shape:
        fields = read(self.schema, hf, GENERATION)
        sides = (read_object(hf, name, self.stack) for name in ("encoder", "decoder"))
        (source, encoder), (target, decoder) = sides
        vocab_size = target["vocab_size"]
        if source["vocab_size"] != vocab_size:
            raise ValueError(
                f"vocab_size of the encoder is {source['vocab_size']}; it must be that of the"
                f" decoder, {vocab_size}"
            )
        words = SPECIAL | read_decoder_tokens(hf["decoder"], generation)
        sides = {"vocab_size": vocab_size, "encoder": encoder, "decoder": decoder}
        cap = float(target["final_logit_softcapping"] or 0.0)
        return self.build(fields, words | hf, generation, dtype, **sides, logit_cap=cap)

    def ends(self, config: Any) -> dict[str, Any]:
        firsts = ("bos_token_id", "decoder_start_token_id")
        return ends_to_hf(config, **dict.fromkeys(firsts, config.start_token))

    def to_fields(self, config: Any) -> dict[str, Any]:
        ends = self.ends(config)
        return {
            "vocab_size": config.vocab_size,
            "encoder": stack_to_hf(config, config.encoder) | ends,
            "decoder": stack_to_hf(config, config.decoder) | ends,
        }


@FAMILIES.register("t5gemma")
class T5GemmaFamily(T5GemmaLike[T5GemmaConfig]):
    """T5Gemma: an encoder and a decoder of Gemma 2 blocks, of one size or of two."""

    shape = T5GemmaConfig
