"""BART checkpoints in Hugging Face's words, and what its relatives share with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from specjax.core.registry import FAMILIES
from specjax.hf.families.encoder_decoder import start_token
from specjax.hf.families.family import Family, Stored
from specjax.hf.families.generation import GENERATION, ends_to_hf, special_tokens
from specjax.hf.families.schema import (
    ALL_FULL,
    COMMON,
    MOST_LAYERS,
    SHARED,
    Schema,
    choice,
    flag,
    only,
    rate,
    read,
    size,
)
from specjax.models.bart import Bart, BartConfig
from specjax.models.base import Where
from specjax.models.layers import ACTIVATIONS

BEFORE_POSITIONS = 2
"""Rows of BART's tables of learned positions that come before the first position."""

LOGITS_BIAS = "final_logits_bias"
EMBEDDING = "model.shared.weight"
STACKS = ("encoder", "decoder")


def _affine(where: Where, tensor: str, weight: str) -> dict[Where, Stored]:
    """A `weight`, `kernel` or `scale`, and its bias."""
    return {
        (*where, weight): Stored(f"{tensor}.weight", weight == "kernel"),
        (*where, "bias"): Stored(f"{tensor}.bias"),
    }


def _layer(layer: str, block: str, attentions: Mapping[str, str]) -> dict[Where, Stored]:
    """A layer whose `attentions` are ours -> theirs."""
    stored = _affine((layer, "ff_norm"), f"{block}.final_layer_norm", "scale")
    for ours, theirs in attentions.items():
        norm = ours.replace("attention", "norm")
        stored |= _affine((layer, norm), f"{block}.{theirs}_layer_norm", "scale")
        for w, tensor in {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}.items():
            stored |= _affine((layer, ours, w), f"{block}.{theirs}.{tensor}", "kernel")
    stored |= _affine((layer, "ff", "up"), f"{block}.fc1", "kernel")
    return stored | _affine((layer, "ff", "down"), f"{block}.fc2", "kernel")


Shape = TypeVar("Shape", bound=BartConfig)


class BartLike(Family, Generic[Shape]):
    """BART and its relatives; each says which parts its models have."""

    model = Bart
    schema = Schema(
        fields=SHARED
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
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "encoder_attention_heads",
            "num_hidden_layers": "encoder_layers",
        },
        harmless=COMMON
        | {"attention_dropout", "decoder_layerdrop", "encoder_layerdrop", "init_std"},
    )
    prefix = "model."
    ignored = r"model\.(en|de)coder\.(embed_tokens\.weight|embed_positions\.weights?|version)"

    parts: ClassVar[Mapping[str, Any]] = {}
    """Fields of `BartConfig` that all models of the family have."""

    architecture: ClassVar[str]
    """Hugging Face's class."""

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of `BartConfig` on positions; `fields` are those read of the configuration `hf`.

        Raises:
          ValueError: naming a field, its value and what is allowed.
        """
        return {"max_positions": fields["max_position_embeddings"], "offset": BEFORE_POSITIONS}

    def vocabularies(self, fields: Mapping[str, Any]) -> dict[str, int]:
        """Fields of `BartConfig` on the sizes of vocabularies.

        Raises:
          ValueError: naming a field, its value and what is allowed.
        """
        return {"vocab_size": fields["vocab_size"]}

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> BartConfig:
        fields = read(self.schema, hf, GENERATION)
        vocabularies = self.vocabularies(fields)
        special = special_tokens(hf, generation, vocabularies["vocab_size"])
        return BartConfig(
            family=hf["model_type"],
            **vocabularies,
            d_model=fields["d_model"],
            d_ff=fields["decoder_ffn_dim"],
            num_heads=fields["decoder_attention_heads"],
            num_decoder_layers=fields["decoder_layers"],
            encoder_ff=fields["encoder_ffn_dim"],
            encoder_heads=fields["encoder_attention_heads"],
            num_layers=fields["encoder_layers"],
            activation=fields["activation_function"],
            scale_embedding=fields["scale_embedding"],
            tied=fields["tie_word_embeddings"],
            dropout=fields["dropout"],
            ff_dropout=fields["activation_dropout"],
            start_token=start_token(special, vocabularies["vocab_size"], generation),
            bos=special.bos,
            eos=special.eos,
            pad=special.pad,
            dtype=dtype,
            **self.parts,
            **self.places(fields, hf),
        )

    def config_to_hf(self, config: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
        firsts = {"decoder_start_token_id": config.start_token, "bos_token_id": config.bos}
        ends = ends_to_hf(config, **firsts)
        shape = {
            "model_type": config.family,
            "architectures": [self.architecture],
            "is_encoder_decoder": True,
            "vocab_size": config.vocab_size,
            "d_model": config.d_model,
            "encoder_layers": config.num_layers,
            "decoder_layers": config.num_decoder_layers,
            "encoder_attention_heads": config.encoder_heads,
            "decoder_attention_heads": config.num_heads,
            "encoder_ffn_dim": config.encoder_ff,
            "decoder_ffn_dim": config.d_ff,
            "activation_function": config.activation,
            "scale_embedding": config.scale_embedding,
            "dropout": config.dropout,
            "activation_dropout": config.ff_dropout,
            "tie_word_embeddings": config.tied,
        }
        if config.max_positions:
            shape["max_position_embeddings"] = config.max_positions
        return shape | ends, ends

    def of_stored(self, config: BartConfig, tensors: Collection[str]) -> BartConfig:
        """Without a bias of the logits where the checkpoint has none."""
        has = config.logits_bias and LOGITS_BIAS in tensors
        return dataclasses.replace(config, logits_bias=has)

    def repeated(
        self, config: BartConfig, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Where the output layer is its own, Hugging Face ties no embedding either."""
        if config.tied:
            return {}
        return {f"model.{stack}.embed_tokens.weight": tensors[EMBEDDING] for stack in STACKS}

    def names(self, config: Shape) -> dict[Where, Stored]:
        stored: dict[Where, Stored] = {("embedding",): Stored(EMBEDDING)}
        if not config.tied:
            stored["head", "kernel"] = Stored("lm_head.weight", True)
        if config.logits_bias:
            stored["logits_bias",] = Stored(LOGITS_BIAS)
        own = {"self_attention": "self_attn"}
        both = own | {"cross_attention": "encoder_attn"}
        counts = config.num_layers, config.num_decoder_layers
        for stack, layers, attentions in zip(STACKS, counts, (own, both), strict=True):
            theirs, entrance = f"model.{stack}", f"{stack}_entrance"
            if config.sinusoids is None:
                table = Stored(f"{theirs}.embed_positions.weight")
                stored[entrance, "position_embedding"] = table
            if config.embedding_norm:
                stored |= _affine((entrance, "norm"), f"{theirs}.layernorm_embedding", "scale")
            if config.final_norm:
                stored |= _affine((f"{stack}_norm",), f"{theirs}.layer_norm", "scale")
            for index in range(layers):
                stored |= _layer(f"{stack}_{index}", f"{theirs}.layers.{index}", attentions)
        return stored


@FAMILIES.register("bart")
class BartFamily(BartLike[BartConfig]):
    """BART, such as facebook/bart-large-cnn."""

    architecture = "BartForConditionalGeneration"
    schema = BartLike.schema.changed("bart", ("classifier_dropout", "is_decoder"))
    parts: ClassVar[Mapping[str, Any]] = {
        "post_norm": True,
        "embedding_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }
