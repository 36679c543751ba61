"""BART and its relatives (mBART, Marian, M2M100 and NLLB, Pegasus) with explicit caches.

One encoder-decoder architecture with layer norms and biases and configurable parts: learned
positions, sinusoids or rotary ones, norms before or after sublayers, a norm of the embeddings,
final norms, a bias of the logits. A family (`hf/families/`) maps a checkpoint's fields to it.

Lewis et al., "BART: Denoising Sequence-to-Sequence Pre-training" (2020); Liu et al., "Multilingual
Denoising Pre-training for Neural Machine Translation" (2020); Junczys-Dowmunt et al., "Marian"
(2018); Fan et al., "Beyond English-Centric Multilingual Machine Translation" (2020); Zhang et al.,
"PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization" (2020).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models import encoder_decoder
from specjax.models.attention import AnyBias, CausalBias, LengthBias, make_text_bias
from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, EncoderDecoderModule
from specjax.models.info import ModelInfo
from specjax.models.layers import Dense, FeedForward, Tree, compute_tied_logits
from specjax.models.norms import LayerNorm
from specjax.models.positions import Rope, Sinusoids, compute_angles, rotate
from specjax.models.windows import make_step_mask


@dataclasses.dataclass(frozen=True)
class BartConfig:
    """Shape of a BART-like model; `d_ff` and `num_heads` are the decoder's."""

    family: str  # Hugging Face's `model_type`
    vocab_size: int
    d_model: int
    d_ff: int
    num_heads: int
    num_decoder_layers: int
    encoder_ff: int
    encoder_heads: int
    num_layers: int  # of the encoder
    max_positions: int | None  # of either stack, or the decoder; None: unlimited sinusoids
    sinusoids: Sinusoids | None = None  # None: learned positions
    rope: Rope | None = None  # rotary positions, and no others
    offset: int = 0  # index of the first position
    source_vocab: int | None = None  # of the encoder, with its own embeddings; None: shared
    source_positions: int | None = None  # of the encoder; None: as many as the decoder has
    unplaced: int | None = None  # a token without position embedding
    post_norm: bool = False  # norms follow the residual sums
    embedding_norm: bool = False
    final_norm: bool = True  # of each stack
    scale_embedding: bool = False  # token embeddings times sqrt(d_model)
    key_bias: bool = True
    query_value_bias: bool = True
    output_bias: bool = True  # of attention
    logits_bias: bool = False
    activation: str = "gelu"
    encoder_activation: str | None = None  # None: that of the decoder
    norm_bias: bool = True
    d_head: int | None = None  # None: heads fill the model's width
    tied: bool = True  # the output layer is the embedding table
    eps: float = 1e-5
    dropout: float = 0.0
    ff_dropout: float = 0.0  # inside of feed-forward networks
    start_token: int = 2
    bos: int | None = 0
    eos: tuple[int, ...] = (2,)
    pad: int = 1
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training recomputes layers for the gradient, to save memory

    def __post_init__(self) -> None:
        if self.d_head is not None:
            return
        for stack, heads in (("encoder", self.encoder_heads), ("decoder", self.num_heads)):
            if self.d_model % heads:
                raise ValueError(
                    f"{stack}_attention_heads is {heads}; it must divide d_model, {self.d_model}"
                )

    @property
    def gated(self) -> bool:
        """Whether the decoder's feed-forward networks are gated."""
        return False

    @property
    def d_kv(self) -> int:
        """Width of a head of the decoder."""
        return self.d_head or self.d_model // self.num_heads


Config = TypeVar("Config", bound=BartConfig)


class Attention(encoder_decoder.Attention):
    """Attention with projections with biases; scores are divided by sqrt(head width)."""

    heads: int

    def setup(self) -> None:
        c = self.config
        width = c.d_model if c.d_head is None else self.heads * c.d_head
        dense = functools.partial(Dense, width, c.dtype)
        self.q, self.v = (dense(bias=c.query_value_bias) for _ in range(2))
        self.k, self.o = dense(bias=c.key_bias), Dense(c.d_model, c.dtype, bias=c.output_bias)

    def queries(self, x: jax.Array, angles: jax.Array | None = None) -> jax.Array:
        q = super().queries(x, angles)
        return q * q.shape[-1] ** -0.5

    def apply_rotation(self, x: jax.Array, angles: jax.Array | None) -> jax.Array:
        rope = self.config.rope
        if angles is None or rope is None:
            return x
        return rotate(x, angles, rope.attention, rope.interleaved)


def make_norm(config: BartConfig) -> LayerNorm:
    return LayerNorm(config.eps, has_bias=config.norm_bias)


def _make_feed_forward(
    config: BartConfig, width: int, activation: str, *, gated: bool
) -> FeedForward:
    return FeedForward(width, activation, gated, config.dtype, config.ff_dropout, bias=True)


class EncoderLayer(encoder_decoder.EncoderLayer):
    attention: ClassVar[type[Attention]] = Attention

    def setup(self) -> None:
        c = self.config
        self.self_norm = self.make_self_norm()
        self.self_attention = self.attention(c, c.encoder_heads)
        self.ff_norm, activation = make_norm(c), c.encoder_activation or c.activation
        self.ff = _make_feed_forward(c, c.encoder_ff, activation, gated=False)
        self.drop = nn.Dropout(c.dropout)

    def make_self_norm(self) -> nn.Module:
        return make_norm(self.config)

    @property
    def post_norm(self) -> bool:
        return self.config.post_norm


class DecoderLayer(encoder_decoder.DecoderLayer):
    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = make_norm(c), Attention(c, c.num_heads)
        self.cross_norm, self.cross_attention = make_norm(c), Attention(c, c.num_heads)
        self.ff_norm = make_norm(c)
        self.ff = _make_feed_forward(c, c.d_ff, c.activation, gated=c.gated)
        self.drop = nn.Dropout(c.dropout)

    @property
    def post_norm(self) -> bool:
        return self.config.post_norm


class StackInput(nn.Module):
    """Adds positions, and an optional norm, to a stack's input embeddings."""

    config: BartConfig
    positions: int | None

    def setup(self) -> None:
        c = self.config
        if c.sinusoids is None and self.positions is not None:
            init, shape = nn.initializers.normal(0.02), (c.offset + self.positions, c.d_model)
            self.position_embedding = self.param("position_embedding", init, shape, jnp.float32)
        if c.embedding_norm:
            self.norm = make_norm(c)

    def __call__(self, x: jax.Array, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """Computes input states [B, T, D] of `tokens` [B, T] with embeddings x [B, T, D]."""
        c = self.config
        if c.rope is None:
            x = x + self.embed_positions(tokens, position)
        x = x.astype(c.dtype)
        return self.norm(x) if c.embedding_norm else x

    def embed_positions(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """Computes embeddings [B, T, D] of positions, zeros at tokens that have none."""
        c, place = self.config, position + self.config.offset
        if c.sinusoids is None:
            made = jnp.take(self.position_embedding, place, axis=0, mode="clip")
        else:
            made = c.sinusoids(place)
        if c.unplaced is None:
            return made
        return jnp.where((tokens == c.unplaced)[..., None], 0.0, made)


class DecoderStack(EncoderDecoderModule, Generic[Config]):
    """Embedding, decoder layers and output layer."""

    config: Config

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(0.02)
        self.embedding = self.param("embedding", init, (c.vocab_size, c.d_model), jnp.float32)
        self.decoder_entrance = StackInput(c, c.max_positions)
        self.decoder = [DecoderLayer(c) for _ in range(c.num_decoder_layers)]
        if c.final_norm:
            self.decoder_norm = make_norm(c)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype)
        if c.logits_bias:
            shape = (1, c.vocab_size)
            self.logits_bias = self.param("logits_bias", nn.initializers.zeros, shape, jnp.float32)
        self.drop = nn.Dropout(c.dropout)

    def embed(self, tokens: jax.Array) -> jax.Array:
        """Returns scaled embeddings [..., D] float32 of tokens [...], without positions."""
        return self.scale_embedding(self.embedding[tokens].astype(jnp.float32))

    def scale_embedding(self, x: jax.Array) -> jax.Array:
        return x * self.config.d_model**0.5 if self.config.scale_embedding else x

    def enter(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        return self.decoder_entrance(self.embed(tokens), tokens, position)

    def make_target_bias(self, size: int) -> AnyBias:
        return make_text_bias(CausalBias(jnp.zeros(1, jnp.int32)), size, size)

    def make_step_bias(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> AnyBias:
        return make_step_mask(data["own"][0], 0, start, fed, tree)

    def compute_decoder_angles(self, position: jax.Array) -> Sequence[jax.Array | None]:
        return compute_angles([self.config.rope] * len(self.decoder), position, position + 1)

    def apply_final_norm(self, x: jax.Array) -> jax.Array:
        return self.decoder_norm(x) if self.config.final_norm else x

    def apply_lm_head(self, x: jax.Array, training: bool = False) -> jax.Array:
        c = self.config
        if c.tied:
            logits = compute_tied_logits(x, self.embedding, training)
        else:
            logits = self.head(x).astype(jnp.float32)
        return logits + self.logits_bias[0] if c.logits_bias else logits


class BartModule(DecoderStack[Config]):
    """Parameters and layers; `Bart` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.source_vocab:
            init, shape = nn.initializers.normal(0.02), (c.source_vocab, c.d_model)
            self.source_embedding = self.param("source_embedding", init, shape, jnp.float32)
        self.encoder_entrance = StackInput(c, c.source_positions or c.max_positions)
        self.encoder = [self.make_encoder_layer(number) for number in range(c.num_layers)]
        if c.final_norm:
            self.encoder_norm = make_norm(c)

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        size = source.shape[1]
        table = self.source_embedding if self.config.source_vocab else self.embedding
        x = self.scale_embedding(table[source].astype(jnp.float32))
        x = self.encoder_entrance(x, source, jnp.arange(size)[None])
        x = self.drop(x, deterministic=deterministic)
        x = self.run_encoder(x, self.make_source_biases(length, size), deterministic)
        return self.encoder_norm(x) if self.config.final_norm else x

    def make_encoder_layer(self, number: int) -> EncoderLayer:
        return EncoderLayer(self.config)

    def make_source_biases(self, length: jax.Array, size: int) -> Sequence[Any]:
        """Builds the encoder layers' biases of texts of `length` [B]."""
        return [make_text_bias(LengthBias(length), size, size)] * len(self.encoder)


@dataclasses.dataclass(frozen=True)
class Bart(EncoderDecoder):
    """A BART-like model (`models.base`)."""

    config: BartConfig

    @property
    def module(self) -> EncoderDecoderModule:
        return BartModule(self.config)

    @property
    def info(self) -> ModelInfo:
        c = self.config
        return dataclasses.replace(
            super().info,
            max_positions=c.max_positions,
            source_positions=c.source_positions,
            source_vocab=c.source_vocab,
            drops_scale=c.final_norm,
        )

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        embedded = super().embed(params, tokens)
        return embedded * self.config.d_model**0.5 if self.config.scale_embedding else embedded
