"""T5Gemma: encoders and decoders of Gemma 2 blocks, with explicit caches.

Zhang et al., "Encoder-Decoder Gemma: Improving the Quality-Efficiency Trade-Off via Adaptation"
(2025); Gemma Team, "Gemma 2" (2024). Each sublayer has a norm before and one after it; scores and
logits are soft-capped; every second layer has a sliding window; rotary positions in self-attention,
none in cross-attention. Encoder and decoder may have different sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models import encoder_decoder
from specjax.models.attention import AnyBias, CausalBias, LengthBias, attention, make_text_bias
from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, EncoderDecoderModule
from specjax.models.layers import (
    Dense,
    FeedForward,
    Tree,
    compute_tied_logits,
    merge_heads,
    soft_cap,
)
from specjax.models.norms import RMSNorm
from specjax.models.positions import Rope, compute_angles, rotate
from specjax.models.windows import make_layer_masks, make_step_mask


@dataclasses.dataclass(frozen=True)
class Stack:
    """Shape of an encoder or a decoder, with the field names of Gemma 2's `config.json`."""

    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_head: int
    rope: Rope
    windows: tuple[int, ...]  # self-attention window of each layer, per side; 0: all
    query_scalar: float  # scores are divided by its square root
    softcap: float = 0.0  # of scores; 0: none
    activation: str = "gelu_pytorch_tanh"
    bias: bool = False  # of the attention's projections
    eps: float = 1e-6
    max_positions: int = 8192  # trained context length; longer rows are allowed
    sliding_rope: Rope | None = None  # of layers with windows; None: `rope`

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_kv_heads}; it must divide the"
                f" {self.num_heads} attention heads"
            )

    @property
    def gated(self) -> bool:
        """Whether feed-forward networks are gated."""
        return True

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """Rotary embedding of each layer."""
        sliding = self.sliding_rope or self.rope
        return tuple(sliding if window else self.rope for window in self.windows)


@dataclasses.dataclass(frozen=True)
class T5GemmaConfig:
    """Shape of a T5Gemma model."""

    vocab_size: int
    encoder: Stack
    decoder: Stack
    tied: bool = True  # the output layer is the decoder's embedding table
    logit_cap: float = 0.0  # 0: none
    dropout: float = 0.0
    family: str = "t5gemma"  # Hugging Face's `model_type`
    start_token: int = 2
    eos: tuple[int, ...] = (1,)
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training recomputes layers for the gradient, to save memory

    @property
    def d_model(self) -> int:
        """Width of the decoder's states."""
        return self.decoder.d_model

    @property
    def num_heads(self) -> int:
        return self.decoder.num_heads

    @property
    def num_decoder_layers(self) -> int:
        return self.decoder.num_layers

    @property
    def unit_offset(self) -> bool:
        """Whether norms store their scale minus 1."""
        return True


Config = TypeVar("Config", bound=T5GemmaConfig)


class SublayerNorms(nn.Module):
    """The norms before and after a sublayer, which store their scale minus 1."""

    eps: float

    def setup(self) -> None:
        self.before = RMSNorm(self.eps, unit_offset=True)
        self.behind = RMSNorm(self.eps, unit_offset=True)


class Attention(encoder_decoder.Attention):
    """Grouped-query attention with soft-capped scores."""

    config: T5GemmaConfig
    shape: Stack
    rope: Rope

    def setup(self) -> None:
        c, dtype = self.shape, self.config.dtype
        self.q = Dense(c.num_heads * c.d_head, dtype, bias=c.bias)
        self.k = Dense(c.num_kv_heads * c.d_head, dtype, bias=c.bias)
        self.v = Dense(c.num_kv_heads * c.d_head, dtype, bias=c.bias)
        self.o = Dense(c.d_model, dtype, bias=c.bias)

    @property
    def heads(self) -> int:
        return self.shape.num_heads

    @property
    def kv_heads(self) -> int:
        return self.shape.num_kv_heads

    def queries(self, x: jax.Array, angles: jax.Array | None = None) -> jax.Array:
        return super().queries(x, angles) * self.shape.query_scalar**-0.5

    def apply_rotation(self, x: jax.Array, angles: jax.Array | None) -> jax.Array:
        return x if angles is None else rotate(x, angles, self.rope.attention)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, bias: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, bias, self.shape.softcap)))


class SandwichLayer(encoder_decoder.Layer[SublayerNorms]):
    """A layer with sandwich norms: a sublayer is `x + behind(f(before(x)))`."""

    config: T5GemmaConfig
    shape: Stack
    rope: Rope

    attention: ClassVar[type[Attention]] = Attention

    def setup_sublayers(self) -> None:
        """Sets up the sublayers of both stacks' layers."""
        c, shape = self.config, self.shape
        self.self_norm, self.ff_norm = SublayerNorms(shape.eps), SublayerNorms(shape.eps)
        self.self_attention = self.attention(c, shape, self.rope)
        self.ff = FeedForward(shape.d_ff, shape.activation, True, c.dtype, c.dropout)
        self.drop = nn.Dropout(c.dropout)

    def before(self, norm: SublayerNorms, x: jax.Array) -> jax.Array:
        return norm.before(x)

    def after(
        self, norm: SublayerNorms, x: jax.Array, made: jax.Array, deterministic: bool
    ) -> jax.Array:
        return super().after(norm, x, norm.behind(made), deterministic)


class EncoderLayer(SandwichLayer, encoder_decoder.EncoderLayer[SublayerNorms]):
    def setup(self) -> None:
        self.setup_sublayers()


class DecoderLayer(SandwichLayer, encoder_decoder.DecoderLayer[SublayerNorms]):
    def setup(self) -> None:
        self.setup_sublayers()
        self.cross_norm = SublayerNorms(self.shape.eps)
        self.cross_attention = Attention(self.config, self.shape, self.rope)


class T5GemmaModule(EncoderDecoderModule, Generic[Config]):
    """Parameters and layers; `T5Gemma` implements the model interface."""

    config: Config

    encoder_layer: ClassVar[type[SandwichLayer]] = EncoderLayer
    decoder_layer: ClassVar[type[SandwichLayer]] = DecoderLayer

    def setup(self) -> None:
        c = self.config
        self.setup_embeddings()
        self.encoder = [self.encoder_layer(c, c.encoder, rope) for rope in c.encoder.ropes]
        self.decoder = [self.decoder_layer(c, c.decoder, rope) for rope in c.decoder.ropes]
        self.encoder_norm = RMSNorm(c.encoder.eps, unit_offset=True)
        self.decoder_norm = RMSNorm(c.decoder.eps, unit_offset=True)
        self.drop = nn.Dropout(c.dropout)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype)

    def setup_embeddings(self) -> None:
        """Sets up the embedding tables of both stacks."""
        c = self.config
        init = nn.initializers.normal(0.02)
        for name, shape in (("source_embedding", c.encoder), ("embedding", c.decoder)):
            setattr(self, name, self.param(name, init, (c.vocab_size, shape.d_model), jnp.float32))

    def embed_source(self, tokens: jax.Array) -> jax.Array:
        """Embeds source tokens [B, S] into encoder input states [B, S, D]."""
        return embed_scaled(self.source_embedding, tokens, self.config.dtype)

    def enter(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        return embed_scaled(self.embedding, tokens, self.config.dtype)

    def get_reach(self, window: int) -> tuple[int, int] | None:
        """Returns the visible distances before and after a token in the encoder; None: all."""
        return (window, window) if window else None

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Computes final-normed encoder states [B, S, D] of source [B, S]."""
        shape, size = self.config.encoder, source.shape[1]
        angles = compute_angles(shape.ropes, jnp.arange(size)[None], length[:, None])
        biases = make_layer_masks(
            shape.windows,
            shape.windows,
            lambda _, window: make_text_bias(
                LengthBias(length, self.get_reach(window)), size, size
            ),
        )
        x = self.drop(self.embed_source(source), deterministic=deterministic)
        x = self.run_encoder(x, biases, deterministic, angles)
        return self.drop(self.encoder_norm(x), deterministic=deterministic)

    def compute_decoder_angles(self, position: jax.Array) -> list[jax.Array | None]:
        return compute_angles(self.config.decoder.ropes, position, position + 1)

    def make_target_biases(self, size: int) -> list[AnyBias]:
        windows, start = self.config.decoder.windows, jnp.zeros(1, jnp.int32)
        return make_layer_masks(
            windows,
            windows,
            lambda _, window: make_text_bias(CausalBias(start, window), size, size),
        )

    def make_step_biases(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> list[AnyBias]:
        windows = self.config.decoder.windows
        return make_layer_masks(
            windows, data["own"], lambda own, window: make_step_mask(own, window, start, fed, tree)
        )

    def select_output(self, x: jax.Array, deterministic: bool) -> jax.Array:
        return self.drop(x, deterministic=deterministic)

    def compute_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        c = self.config
        x = self.decoder_norm(x)
        if c.tied:
            logits = compute_tied_logits(x, self.embedding, training)
        else:
            logits = self.head(x).astype(jnp.float32)
        return soft_cap(logits, c.logit_cap)


def embed_scaled(table: jax.Array, tokens: jax.Array, dtype: Any) -> jax.Array:
    """Returns embeddings [..., D] of tokens [...], times sqrt(D) rounded to `dtype`."""
    return table[tokens].astype(dtype) * jnp.asarray(table.shape[1] ** 0.5, dtype)


@dataclasses.dataclass(frozen=True)
class T5Gemma(EncoderDecoder):
    """A T5Gemma model (`models.base`)."""

    config: T5GemmaConfig

    @property
    def module(self) -> T5GemmaModule:
        return T5GemmaModule(self.config)

    @property
    def decoder_shape(self) -> Stack:
        return self.config.decoder

    @property
    def cross_heads(self) -> tuple[int, int]:
        return self.decoder_shape.num_kv_heads, self.decoder_shape.d_head

    @property
    def windows(self) -> tuple[int, ...]:
        return self.config.decoder.windows

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return embed_scaled(params["embedding"], tokens, self.config.dtype)
