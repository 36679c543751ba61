"""T5Gemma checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from specjax.core.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.declared import declared_by, part
from specjax.hf.families.encoder_decoder import start_token
from specjax.hf.families.family import Family, Stored, linear
from specjax.hf.families.generation import (
    BEAMS,
    GENERATION,
    TOKENS,
    beams_in,
    ends_to_hf,
    refuse_processors,
    said,
    settings_in,
    special_tokens,
)
from specjax.hf.families.layer_types import KINDS, windows_of
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
    shown,
    size,
)
from specjax.models.base import Where
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig

SPECIAL = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
"""Special tokens that a decoder has which does not say."""

CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096}
"""What a configuration without these fields means; null means none."""

STACK = Schema(
    fields=SHARED
    | rotary.FIELDS
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
        "sliding_window": size(None),
        "layer_types": raw(),
    },
    # Hugging Face overwrites dropout and the encoder's width of a side by those of the whole.
    harmless=COMMON
    | {
        "attention_dropout",
        "cross_attention_hidden_size",
        "dropout_rate",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "tie_word_embeddings",
    },
    declared=declared_by("t5_gemma_module"),
)
"""Fields of the encoder and of the decoder: those of Gemma 2."""

SCALINGS = ("default", "linear", "llama3", "yarn")
"""Rotations that do not depend on how long a text is."""


def _windows(fields: dict[str, Any], every: int) -> tuple[int, ...]:
    """All layers but each of that number slide, unless `layer_types` says otherwise."""
    layers, window, kinds = (
        fields[name] for name in ("num_hidden_layers", "sliding_window", "layer_types")
    )
    if kinds is None:
        kinds = [KINDS[(layer + 1) % every > 0] for layer in range(layers)]
    return windows_of(kinds, layers, window, "sliding_window") or (0,) * layers


def stack_from_hf(fields: dict[str, Any], full_every: int = 2, **more: Any) -> Stack:
    """The shape that the checked `fields` of a side describe."""
    rope = rotary.rope_from_hf(fields, fields["head_dim"])
    if rope.kind not in SCALINGS:
        raise ValueError(f"rope_type is {rope.kind!r}; it must be one of {', '.join(SCALINGS)}")
    return Stack(
        d_model=fields["hidden_size"],
        d_ff=fields["intermediate_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=fields["num_attention_heads"],
        num_kv_heads=fields["num_key_value_heads"],
        d_head=fields["head_dim"],
        rope=rope,
        windows=_windows(fields, full_every),
        query_scalar=float(fields["query_pre_attn_scalar"]),
        softcap=float(fields["attn_logit_softcapping"] or 0.0),
        activation=fields["hidden_activation"],
        bias=fields["attention_bias"],
        eps=fields["rms_norm_eps"],
        max_positions=fields["max_position_embeddings"],
        **more,
    )


def stack_to_hf(config: T5GemmaConfig, stack: Stack) -> dict[str, Any]:
    """The fields of a side."""
    return {
        "model_type": "t5_gemma_module",
        "vocab_size": config.vocab_size,
        "hidden_size": stack.d_model,
        "intermediate_size": stack.d_ff,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.num_heads,
        "num_key_value_heads": stack.num_kv_heads,
        "head_dim": stack.d_head,
        "hidden_activation": stack.activation,
        "max_position_embeddings": stack.max_positions,
        "rms_norm_eps": stack.eps,
        "rope_theta": stack.rope.theta,
        "rope_scaling": rotary.rope_to_hf(stack.rope),
        "attention_bias": stack.bias,
        "query_pre_attn_scalar": _whole(stack.query_scalar),
        "attn_logit_softcapping": stack.softcap or None,
        "final_logit_softcapping": config.logit_cap or None,
        "sliding_window": max(stack.windows) or CAPS["sliding_window"],
        "layer_types": [KINDS[window > 0] for window in stack.windows],
        "dropout_rate": config.dropout,
    }


def _whole(value: float) -> int | float:
    """Hugging Face reads whole numbers only as such."""
    return int(value) if value == int(value) else value


def _layer(layer: str, block: str, bias: bool, kinds: tuple[str, ...]) -> dict[Where, Stored]:
    """Where a layer's parameters are stored, which attends in these `kinds`."""
    stored: dict[Where, Stored] = {}
    theirs = {"self": "self_attn", "cross": "cross_attn", "ff": "feedforward"}
    for kind in (*kinds, "ff"):
        for ours, place in (("before", "pre"), ("behind", "post")):
            where = (layer, f"{kind}_norm", ours, "scale")
            stored[where] = Stored(f"{block}.{place}_{theirs[kind]}_layernorm.weight")
    for kind in kinds:
        for w in "qkvo":
            where = (layer, f"{kind}_attention", w)
            stored |= linear(where, f"{block}.{theirs[kind]}.{w}_proj", bias)
    for w in ("gate", "up", "down"):
        stored |= linear((layer, "ff", w), f"{block}.mlp.{w}_proj", False)
    return stored


Shape = TypeVar("Shape", bound=T5GemmaConfig)


class T5GemmaLike(Family, Generic[Shape]):
    """T5Gemma and its relative: an encoder and a decoder of Gemma's blocks."""

    model = T5Gemma
    schema = Schema(
        fields=SHARED
        | {
            "encoder": raw(),
            "decoder": raw(),
            "dropout_rate": rate(0.0),
            "tie_word_embeddings": flag(True),
            "is_encoder_decoder": only(True),
        },
        harmless=COMMON
        | {
            "attention_dropout",
            "classifier_dropout_rate",
            "initializer_range",
            "vocab_size",
        },
        declared=declared_by("t5gemma"),
    )
    prefix = "model."
    output = "lm_head.out_proj.weight"
    architecture = "T5GemmaForConditionalGeneration"
    described: type[Shape]
    tables: ClassVar[Mapping[Where, Stored]] = {
        ("embedding",): Stored("model.decoder.embed_tokens.weight"),
        ("source_embedding",): Stored("model.encoder.embed_tokens.weight"),
    }
    attentions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "encoder": ("self",),
        "decoder": ("self", "cross"),
    }
    """Kinds of attention that a side's layers have."""

    def stack(self, written: dict[str, Any]) -> tuple[dict[str, Any], Stack]:
        """The checked fields of a side, and the shape that they describe."""
        fields = read(STACK, CAPS | written, GENERATION)
        return fields, stack_from_hf(fields)

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Shape:
        fields = read(self.schema, hf, GENERATION)
        sides = (self._side(hf, name) for name in ("encoder", "decoder"))
        (source, encoder), (target, decoder) = sides
        vocab_size = target["vocab_size"]
        if source["vocab_size"] != vocab_size:
            raise ValueError(
                f"vocab_size of the encoder is {source['vocab_size']}; it must be that of the"
                f" decoder, {vocab_size}"
            )
        # Hugging Face takes what its generation settings do not say from the decoder's.
        words = SPECIAL | {name: hf["decoder"][name] for name in TOKENS if name in hf["decoder"]}
        if generation is None:
            _refuse_settings(hf["decoder"])
        special = special_tokens(words | hf, generation, vocab_size)
        return self.described(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder,
            tied=fields["tie_word_embeddings"],
            logit_cap=float(target["final_logit_softcapping"] or 0.0),
            dropout=fields["dropout_rate"],
            start_token=start_token(special, vocab_size, generation),
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
        )

    def config_to_hf(self, config: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
        firsts = ("bos_token_id", "decoder_start_token_id")
        ends = ends_to_hf(config, **dict.fromkeys(firsts, config.start_token))
        shape = {
            "model_type": config.family,
            "architectures": [self.architecture],
            "is_encoder_decoder": True,
            "vocab_size": config.vocab_size,
            "encoder": stack_to_hf(config, config.encoder) | ends,
            "decoder": stack_to_hf(config, config.decoder) | ends,
            "dropout_rate": config.dropout,
            "tie_word_embeddings": config.tied,
        }
        return shape | ends, ends

    def names(self, config: Shape) -> dict[Where, Stored]:
        stored = dict(self.tables)
        if not config.tied:
            stored["head", "kernel"] = Stored(self.output, transposed=True)
        for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
            stored[f"{side}_norm", "scale"] = Stored(f"model.{side}.norm.weight")
            for index in range(stack.num_layers):
                block = f"model.{side}.layers.{index}"
                stored |= _layer(f"{side}_{index}", block, stack.bias, self.attentions[side])
        return stored

    def _side(self, hf: dict[str, Any], name: str) -> tuple[dict[str, Any], Stack]:
        """`stack` of the encoder or the decoder."""
        written = hf.get(name)
        if not isinstance(written, dict):
            raise ValueError(f"{name} is {shown(written)}; it must be an object with its fields")
        try:
            with part(name):
                return self.stack(written)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


@FAMILIES.register("t5gemma")
class T5GemmaFamily(T5GemmaLike[T5GemmaConfig]):
    """T5Gemma: an encoder and a decoder of Gemma 2 blocks, of one size or of two."""

    described = T5GemmaConfig


def _refuse_settings(decoder: dict[str, Any]) -> None:
    """Refuses what Hugging Face would decode under where no file of generation settings is."""
    try:
        refuse_processors(decoder, None)
        beams = beams_in(decoder)
    except ValueError as error:
        raise ValueError(f"decoder: {error}") from None
    given = settings_in(said(decoder, None)) | {BEAMS: beams}
    for name, value in given.items():
        if value not in ((1,) if name in ("repetition_penalty", BEAMS) else (0, [])):
            raise ValueError(
                f"decoder: {name} is {shown(value)}; it must be in generation_config.json, which is"
                " not there"
            )
