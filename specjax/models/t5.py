"""The T5 family (T5 v1.0 and v1.1, Flan-T5, mT5) with explicit caches.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(2020). Differences from a textbook transformer: RMS norms before each sublayer, no biases, scores
without a 1/sqrt(d) factor, and one table of relative position biases per stack, shared by its
layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import encoder_decoder
from specjax.models.attention import AnyBias, is_whole, of_call, of_tree
from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, EncoderDecoderModule
from specjax.models.layers import (
    MASKED,
    Dense,
    FeedForward,
    RMSNorm,
    Tree,
    key_mask,
    tied_logits,
)
from specjax.models.relative_bias import RelativeBias, RelativeBiasOf, tree_bias


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Shape of a T5 model, in the words of its Hugging Face `config.json`."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    activation: str = "gelu_new"
    gated: bool = True
    tied: bool = False  # the output layer is the embedding table
    scale_outputs: bool = False  # decoder output times d_model ** -0.5 before the output layer
    buckets: int = 32
    max_distance: int = 128
    eps: float = 1e-6
    dropout: float = 0.0
    family: str = "t5"  # Hugging Face's `model_type`
    start_token: int = 0
    eos: tuple[int, ...] = (1,)
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training computes layers again for the gradient: less memory


class Attention(encoder_decoder.Attention):
    """Projections without biases; scores are not scaled."""

    def setup(self) -> None:
        c = self.config
        inner = c.num_heads * c.d_kv
        # T5 folds the 1/sqrt(d_kv) of the scores into the initial query weights.
        self.q = Dense(inner, c.dtype, 1.0 / c.d_kv)
        self.k = Dense(inner, c.dtype)
        self.v = Dense(inner, c.dtype)
        self.o = Dense(c.d_model, c.dtype)

    @property
    def heads(self) -> int:
        return self.config.num_heads


class EncoderLayer(encoder_decoder.EncoderLayer):
    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)
        self.drop = nn.Dropout(c.dropout)


class DecoderLayer(encoder_decoder.DecoderLayer):
    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.cross_norm, self.cross_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)
        self.drop = nn.Dropout(c.dropout)


class T5Module(EncoderDecoderModule):
    """Parameters and layers; `T5` wraps it into the model contract."""

    config: T5Config

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(1.0)
        self.embedding = self.param("embedding", init, (c.vocab_size, c.d_model), jnp.float32)
        self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
        self.decoder = [DecoderLayer(c) for _ in range(c.num_decoder_layers)]
        self.encoder_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, True)
        self.decoder_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, False)
        self.encoder_norm, self.decoder_norm = RMSNorm(c.eps), RMSNorm(c.eps)
        self.drop = nn.Dropout(c.dropout)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype)

    def enter(self, tokens: jax.Array, position: jax.Array | None = None) -> jax.Array:
        """Input states [B, T, D] of tokens: the scores know the positions."""
        return self.embedding[tokens].astype(self.config.dtype)

    def source_bias(self, length: jax.Array, size: int) -> AnyBias:
        """Bias of the encoder's attention: relative positions, no keys beyond `length` [B]."""
        if not is_whole(size, size):
            table = self.encoder_bias(np.arange(-(size - 1), size + 1))
            return RelativeBiasOf(table, jnp.zeros(1, jnp.int32), length)
        position = np.arange(size)
        bias = self.encoder_bias(position[None, :] - position[:, None])
        return bias[None] + key_mask(length, size)

    def target_bias(self, size: int) -> AnyBias:
        if not is_whole(size, size):
            return RelativeBiasOf(self.reversed_bias(size), jnp.zeros(1, jnp.int32))
        position = np.arange(size)
        distance = position[None, :] - position[:, None]
        return (self.decoder_bias(distance) + np.where(distance > 0, MASKED, 0.0))[None]

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Final-normed encoder states [B, S, D] of source [B, S]."""
        bias = self.source_bias(length, source.shape[1])
        x = self.drop(self.enter(source), deterministic=deterministic)
        x = self.through_encoder(x, bias, deterministic)
        return self.drop(self.encoder_norm(x), deterministic=deterministic)

    def leave(self, x: jax.Array, deterministic: bool) -> jax.Array:
        return self.drop(x, deterministic=deterministic)

    def normed(self, x: jax.Array) -> jax.Array:
        return self.decoder_norm(x)

    def output(self, x: jax.Array, training: bool = False) -> jax.Array:
        c = self.config
        if c.scale_outputs:
            x = x * c.d_model**-0.5
        if c.tied:
            return tied_logits(x, self.embedding.astype(c.dtype), training)
        return self.head(x).astype(jnp.float32)

    def reversed_bias(self, capacity: int) -> jax.Array:
        """Self-attention bias and causal mask by position, [H, 2 * capacity] (see `bias_rows`)."""
        distance = np.arange(-(capacity - 1), capacity + 1)
        return self.decoder_bias(distance) + np.where(distance > 0, MASKED, 0.0)

    def step_bias(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> AnyBias:
        if tree is not None:
            return of_tree(tree_bias(data["bias"], tree, start), start)
        slots = data["bias"].shape[1] // 2
        return of_call(RelativeBiasOf(data["bias"], start), start, fed, slots)


@dataclasses.dataclass(frozen=True)
class T5(EncoderDecoder):
    """A T5-family model under the contract of `models.base`."""

    config: T5Config

    @property
    def module(self) -> T5Module:
        return T5Module(self.config)

    @property
    def max_positions(self) -> None:
        return None

    def prepared(self, params: Params, capacity: int) -> dict[str, Any]:
        """The bias of all relative positions."""
        bias = self.module.apply({"params": params}, capacity, method="reversed_bias")
        return {"bias": bias}
