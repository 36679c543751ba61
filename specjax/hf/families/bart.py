"""BART and its relatives: mBART, Pegasus, Marian, M2M100 and NLLB."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Family, Shape, Tensors, nest_modules
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    format_value,
    is_int,
    only,
    rate,
    size,
)
from specjax.models.bart import Bart, BartConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Sinusoids

BEFORE_POSITIONS = 2
"""Rows of BART's tables of learned positions that come before the first position."""

LOGITS_BIAS = "final_logits_bias"
EMBEDDING = "model.shared.weight"
STACKS = ("encoder", "decoder")


def decoder_modules(place: str) -> Tensors:
    """The modules of a decoder that is at a `place` in a checkpoint."""
    return _stack("decoder", place)


def _stack(side: str, place: str) -> Tensors:
    """The modules of an encoder or a decoder."""
    layer = {"ff_norm": "final_layer_norm", "ff.up": "fc1", "ff.down": "fc2"}
    for ours, theirs in (("self", "self_attn"), ("cross", "encoder_attn")):
        layer[f"{ours}_norm"] = f"{theirs}_layer_norm"
        layer |= {f"{ours}_attention.{w}": f"{theirs}.{w}_proj" for w in "qkv"}
        layer[f"{ours}_attention.o"] = f"{theirs}.out_proj"
    return {
        f"{side}_entrance.position_embedding": f"{place}.embed_positions.weight",
        f"{side}_entrance.norm": f"{place}.layernorm_embedding",
        f"{side}_norm": f"{place}.layer_norm",
        **nest_modules(f"{side}_{{}}", f"{place}.layers.{{}}", layer),
    }


class BartLike(Family[Shape]):
    """BART and its relatives; each class declares the parts of its models."""

    model, shape = Bart, BartConfig
    schema = Schema(
        SHARED
        | ALL_FULL
        | {
            "vocab_size": size(),
            "d_model": size(),
            "encoder_layers": size(most=MOST_LAYERS),
            "decoder_layers": size(most=MOST_LAYERS),
            "encoder_attention_heads": size(),
            "decoder_attention_heads": size(),
            "encoder_ffn_dim": size(),
            "decoder_ffn_dim": size(),
            "max_position_embeddings": size(1024),
            "activation_function": choice("gelu", ACTIVATIONS),
            "scale_embedding": flag(False),
            "dropout": rate(0.1),
            "activation_dropout": rate(0.0),
            "tie_word_embeddings": flag(True),
            "is_encoder_decoder": only(True),
        },
        COMMON | {"attention_dropout", "decoder_layerdrop", "encoder_layerdrop", "init_std"},
    )
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "d_ff": "decoder_ffn_dim",
        "num_heads": "decoder_attention_heads",
        "num_decoder_layers": "decoder_layers",
        "encoder_ff": "encoder_ffn_dim",
        "encoder_heads": "encoder_attention_heads",
        "num_layers": "encoder_layers",
        "max_positions": "max_position_embeddings",
        "activation": "activation_function",
        "scale_embedding": "scale_embedding",
        "tied": "tie_word_embeddings",
        "dropout": "dropout",
        "ff_dropout": "activation_dropout",
    }
    tensors: ClassVar[Tensors] = {
        "embedding": EMBEDDING,
        "head": "lm_head",
        "logits_bias": LOGITS_BIAS,
        **_stack("encoder", "model.encoder"),
        **_stack("decoder", "model.decoder"),
    }
    prefix = "model."
    ignored = r"model\.(en|de)coder\.(embed_tokens\.weight|embed_positions\.weights?|version)"

    def of_stored(self, config: Any, tensors: Collection[str]) -> Any:
        """Without a bias of the logits where the checkpoint has none."""
        has = config.logits_bias and LOGITS_BIAS in tensors
        return dataclasses.replace(config, logits_bias=has)

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Where the output layer is its own, Hugging Face ties no embedding either."""
        if config.tied:
            return {}
        shared = tensors[f"{self.prefix}shared.weight"]
        return {f"{self.prefix}{stack}.embed_tokens.weight": shared for stack in STACKS}


@FAMILIES.register("bart")
class BartFamily(BartLike[BartConfig]):
    """BART, such as facebook/bart-large-cnn."""

    architecture = "BartForConditionalGeneration"
    schema = BartLike.schema.derive("bart", ("classifier_dropout", "is_decoder"))
    constants: ClassVar[dict[str, Any]] = {
        "offset": BEFORE_POSITIONS,
        "post_norm": True,
        "embedding_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }


@FAMILIES.register("mbart")
class MBartFamily(BartLike[BartConfig]):
    """mBART and mBART-50."""

    architecture = "MBartForConditionalGeneration"
    schema = BartLike.schema.derive("mbart", ("classifier_dropout", "is_decoder"))
    constants: ClassVar[dict[str, Any]] = {
        "offset": BEFORE_POSITIONS,
        "embedding_norm": True,
        "logits_bias": True,
    }


@FAMILIES.register("pegasus")
class PegasusFamily(BartLike[BartConfig]):
    """Pegasus, such as google/pegasus-xsum."""

    architecture = "PegasusForConditionalGeneration"
    schema = BartLike.schema.derive("pegasus")
    constants: ClassVar[dict[str, Any]] = {"logits_bias": True}

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {"sinusoids": Sinusoids(fields["d_model"])}

    def of_stored(self, config: Any, tensors: Collection[str]) -> Any:
        """With the positions of the checkpoint, where it has some: Hugging Face reads them too."""
        config = super().of_stored(config, tensors)
        names = [f"model.{stack}.embed_positions.weight" for stack in STACKS]
        missing = [name for name in names if name not in tensors]
        if len(missing) == 1:
            raise ValueError(f"the tensor {missing[0]!r} is missing, and the other stack has one")
        return config if missing else dataclasses.replace(config, sinusoids=None)


SHARED_EMBEDDINGS = "share_encoder_decoder_embeddings"


@FAMILIES.register("marian")
class MarianFamily(BartLike[BartConfig]):
    """Marian, such as Helsinki-NLP/opus-mt-en-de, of one vocabulary or of two."""

    architecture = "MarianMTModel"
    schema = BartLike.schema.derive(
        "marian",
        ("is_decoder",),
        **{SHARED_EMBEDDINGS: flag(True), "decoder_vocab_size": size(None)},
    )
    constants: ClassVar[dict[str, Any]] = {
        "post_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """The vocabulary is the decoder's; the encoder may have one of its own."""
        encoders, shared = fields["vocab_size"], fields[SHARED_EMBEDDINGS]
        decoders = fields["decoder_vocab_size"] or encoders
        if shared and decoders != encoders:
            raise ValueError(
                f"decoder_vocab_size is {decoders}; it must be vocab_size, {encoders}, where"
                f" {SHARED_EMBEDDINGS} is true"
            )
        return {
            "sinusoids": Sinusoids(fields["d_model"]),
            "vocab_size": decoders,
            "source_vocab": None if shared else encoders,
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        return {
            "vocab_size": config.source_vocab or config.vocab_size,
            "decoder_vocab_size": config.vocab_size,
            SHARED_EMBEDDINGS: config.source_vocab is None,
        }

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {} if config.source_vocab else super().repeat_tensors(config, tensors)

    def table(self, config: Any) -> Tensors:
        own = {
            "source_embedding": "model.encoder.embed_tokens.weight",
            "embedding": "model.decoder.embed_tokens.weight",
        }
        return {**self.tensors, **own} if config.source_vocab else self.tensors


PAD = 1
"""Of Hugging Face's class: where a `config.json` names no token, positions begin after this one."""


@FAMILIES.register("m2m_100")
class M2M100Family(BartLike[BartConfig]):
    """M2M100 and NLLB-200's dense models; positions have no end."""

    architecture = "M2M100ForConditionalGeneration"
    schema = BartLike.schema.derive("m2m_100")
    words: ClassVar[dict[str, str]] = {
        name: field for name, field in BartLike.words.items() if name != "max_positions"
    }

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """Positions are numbered from the padding token's id on; padding has none."""
        pad = hf.get("pad_token_id", PAD)
        if not (is_int(pad) and 0 <= pad < fields["vocab_size"]):
            raise ValueError(
                f"pad_token_id is {format_value(pad)}; positions begin after it, so it must be a "
                "token id"
                f" from 0 to {fields['vocab_size'] - 1}"
            )
        return {
            "max_positions": None,
            "sinusoids": Sinusoids(fields["d_model"], to_base=True),
            "offset": pad + 1,
            "unplaced": pad,
        }

    def config_to_hf(self, config: BartConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        fields, ends = super().config_to_hf(config)
        return fields | {"pad_token_id": config.unplaced}, ends
