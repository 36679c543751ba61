"""T5Gemma 2 (text only): encoders and decoders of Gemma 3 blocks, with explicit caches.

Zhang et al., "T5Gemma 2: Seeing, Reading, and Understanding Longer" (2025). As T5Gemma, but: one
embedding for both stacks, with a separate row for the token after images; queries and keys are
normed, in self-attention and for the encoder's states; layers with windows have another rotary
base; and a decoder layer has one attention, whose softmax is over both its own keys and the
encoder's. The encoder's keys are neither rotated nor limited by windows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models import encoder_decoder, t5gemma
from specjax.models.attention import Source, merge_attention
from specjax.models.base import Params
from specjax.models.caches import KeysValues
from specjax.models.layers import merge_heads, split_heads
from specjax.models.norms import RMSNorm
from specjax.models.t5gemma import (
    SandwichLayer,
    SublayerNorms,
    T5Gemma,
    T5GemmaConfig,
    T5GemmaModule,
)


@dataclasses.dataclass(frozen=True)
class T5Gemma2Config(T5GemmaConfig):
    """Shape of a T5Gemma 2 model, whose stacks are equally wide."""

    family: str = "t5gemma2"
    image_end: int = 256_000  # the token after an image, with a separate embedding

    def __post_init__(self) -> None:
        if self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                f"hidden_size of the encoder is {self.encoder.d_model}; it must be that of the"
                f" decoder, {self.decoder.d_model}"
            )


class Attention(t5gemma.Attention):
    """Grouped-query attention with a norm of each query and key head before rotation."""

    def setup(self) -> None:
        super().setup()
        self.q_norm = RMSNorm(self.shape.eps, unit_offset=True)
        self.k_norm = RMSNorm(self.shape.eps, unit_offset=True)

    def queries(self, x: jax.Array, angles: jax.Array | None = None) -> jax.Array:
        q = self.q_norm(split_heads(self.q(x), self.heads))
        return self.apply_rotation(q, angles) * self.shape.query_scalar**-0.5

    def keys_values(self, x: jax.Array, angles: jax.Array | None = None) -> KeysValues:
        keys = self.k_norm(split_heads(self.k(x), self.kv_heads))
        return self.apply_rotation(keys, angles), split_heads(self.v(x), self.kv_heads)

    def attend_merged(self, q: jax.Array, sources: Sequence[Source]) -> jax.Array:
        """Attends to all `sources` with one softmax."""
        return self.o(merge_heads(merge_attention(q, sources)))


class EncoderLayer(t5gemma.EncoderLayer):
    attention = Attention


class DecoderLayer(SandwichLayer, encoder_decoder.DecoderLayer[SublayerNorms]):
    """Attention to the decoder's tokens and the encoder's states at once, feed-forward network."""

    attention = Attention

    def setup(self) -> None:
        self.setup_sublayers()

    def compute_cross_keys_values(self, encoded: jax.Array) -> KeysValues:
        return self.self_attention.keys_values(encoded)

    def attend(
        self, x: jax.Array, queries: jax.Array, own: Source, encoded: Source, deterministic: bool
    ) -> jax.Array:
        h = self.self_attention.attend_merged(queries, (own, encoded))
        return self.after(self.self_norm, x, h, deterministic)


class T5Gemma2Module(T5GemmaModule[T5Gemma2Config]):
    """Parameters and layers; `T5Gemma2` implements the model interface."""

    encoder_layer = EncoderLayer
    decoder_layer = DecoderLayer

    def setup_embeddings(self) -> None:
        init, c = nn.initializers.normal(0.02), self.config
        self.embedding = self.param("embedding", init, (c.vocab_size, c.d_model), jnp.float32)
        zeros = nn.initializers.zeros
        self.image_end = self.param("image_end", zeros, (c.d_model,), jnp.float32)

    def embed_source(self, tokens: jax.Array) -> jax.Array:
        return embed_tokens(self.embedding, self.image_end, tokens, self.config)

    def enter(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        return self.embed_source(tokens)

    def get_reach(self, window: int) -> tuple[int, int] | None:
        """Returns distances that sum, with the token itself, to the window."""
        return ((window - 1) // 2, window // 2) if window else None


def embed_tokens(
    table: jax.Array, image_end: jax.Array, tokens: jax.Array, config: T5Gemma2Config
) -> jax.Array:
    """Returns embeddings [..., D] of tokens [...], unscaled for the token after images."""
    x = t5gemma.embed_scaled(table, tokens, config.dtype)
    return jnp.where((tokens == config.image_end)[..., None], image_end.astype(config.dtype), x)


@dataclasses.dataclass(frozen=True)
class T5Gemma2(T5Gemma):
    """A T5Gemma 2 model under the contract of `models.base`."""

    config: T5Gemma2Config

    @property
    def module(self) -> T5Gemma2Module:
        return T5Gemma2Module(self.config)

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return embed_tokens(params["embedding"], params["image_end"], tokens, self.config)
