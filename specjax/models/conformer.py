"""Fast Conformer: an encoder of log-mel frames with a convolution in each layer.

Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition" (2020), section
2: a layer has half a feed-forward network before attention and convolution, and half of one after.
Attention is relative: Dai et al., "Transformer-XL" (2019), section 3.3. Rekesh et al., "Fast
Conformer with Linearly Scalable Attention for Efficient Speech Recognition" (2023), section 3:
convolutions over frames and frequencies, all but the first depthwise, leave an eighth of the
frames. Convolutions and attention see no padding of a row.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models import encoder_decoder
from specjax.models.attention import make_text_bias
from specjax.models.audio_convolution import AudioConvolution
from specjax.models.info import Spectrogram
from specjax.models.layers import ACTIVATIONS, Dense, FeedForward, make_key_mask, split_heads
from specjax.models.norms import BatchNorm, LayerNorm
from specjax.models.positions import Sinusoids


@dataclasses.dataclass(frozen=True)
class ConformerConfig:
    """Shape of a Fast Conformer; the model that has it counts its layers."""

    d_model: int
    d_ff: int
    num_heads: int
    mels: int  # numbers of a frame
    max_states: int
    channels: int  # of the convolutions before the layers
    convolutions: int  # of them that have a stride
    kernel: int
    stride: int
    taps: int  # of the convolution of a layer
    activation: str
    bias: bool  # of attention and feed-forward networks
    convolution_bias: bool
    scaled: bool  # the first layer's input is multiplied by sqrt(d_model)
    dtype: Any = jnp.float32  # of the arithmetic

    @property
    def padding(self) -> int:
        """Zeros that a convolution before the layers adds at both ends."""
        return (self.kernel - 1) // 2

    @property
    def input(self) -> Spectrogram:
        steps = ((self.kernel - 2 * self.padding, self.stride),) * self.convolutions
        return Spectrogram(self.max_states * self.stride**self.convolutions, self.mels, steps)

    @property
    def frequencies(self) -> int:
        """What the convolutions leave of a frame's numbers."""
        return self.input.count_states(self.mels)


class Subsampling(nn.Module):
    """Maps frames [B, P, M] of `length` [B] to the first layer's input [B, S, D].

    Modules have the numbers of the checkpoint, which counts activations too.
    """

    config: ConformerConfig

    @nn.compact
    def __call__(self, frames: jax.Array, length: jax.Array) -> jax.Array:
        c, x = self.config, frames[..., None]
        convolution = functools.partial(AudioConvolution, c.channels, dtype=c.dtype)
        strided = functools.partial(convolution, c.kernel, c.stride, c.padding)
        for number, (width, stride) in enumerate(c.input.convolutions):
            inside = jnp.arange(x.shape[1]) < length[:, None]
            x = jnp.where(inside[..., None, None], x, 0.0)
            if number == 0:
                x = strided(name="convolution_0")(x)
            else:
                x = strided(groups=c.channels, name=f"depthwise_{3 * number - 1}")(x)
                x = convolution(1, 1, name=f"convolution_{3 * number}")(x)
            x, length = jax.nn.relu(x), (length - width) // stride + 1
        flat = x.swapaxes(2, 3).reshape(*x.shape[:2], -1)
        made = Dense(c.d_model, c.dtype, bias=True, name="projection")(flat)
        return made * c.d_model**0.5 if c.scaled else made


def embed_distances(size: int, width: int, dtype: jnp.dtype) -> Float[Array, "1 W D"]:
    """Computes embeddings [1, 2 S - 1, D] of the distances S - 1 to 1 - S from keys to queries."""
    made = Sinusoids(width)(jnp.arange(size - 1, -size, -1))
    sines, cosines = jnp.split(made, 2, axis=-1)
    return jnp.stack([sines, cosines], axis=-1).reshape(1, -1, width).astype(dtype)


class RelativeScores(struct.PyTreeNode):
    """Scores of queries with the keys of distances, per block (`attention.Bias`).

    Terms b and d of Transformer-XL; keys from a row's `length` on are masked.
    """

    queries: Float[Array, "B H S d"]  # scaled
    keys: Float[Array, "1 H W d"]  # of the distances S - 1 to 1 - S
    length: Int32[Array, " B"]

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        size, span = self.queries.shape[2], queries + keys - 1
        q = jnp.take(self.queries, query + jnp.arange(queries), axis=2, mode="clip")
        # Queries of the last block that are beyond S have no distances.
        padded = jnp.pad(self.keys[0], ((0, 0), (queries, 0), (0, 0)))
        near = jax.lax.dynamic_slice_in_dim(padded, size - query + key, span, axis=1)
        scores = jnp.einsum("bhtd,hwd->bhtw", q, near, preferred_element_type=jnp.float32)
        # Query t has key c at number queries - 1 - t + c: rows of one number more, read as shorter.
        flat = jnp.pad(scores, ((0, 0),) * 3 + ((0, 1),)).reshape(*scores.shape[:2], -1)
        rows = flat[..., queries - 1 : queries - 1 + queries * span].reshape(scores.shape)
        return rows[..., :keys] + make_key_mask(self.length - key, keys)


class RelativeAttention(encoder_decoder.Attention):
    """Self-attention by content and by distance, with a bias of queries for each (u and v)."""

    @property
    def heads(self) -> int:
        return self.config.num_heads

    def setup(self) -> None:
        c = self.config
        self.q, self.k, self.v, self.o = (Dense(c.d_model, c.dtype, bias=c.bias) for _ in range(4))
        self.distance = Dense(c.d_model, c.dtype)
        shape = c.num_heads, c.d_model // c.num_heads
        self.content_bias, self.distance_bias = (
            self.param(name, nn.initializers.normal(0.02), shape, jnp.float32)
            for name in ("content_bias", "distance_bias")
        )

    def attend(self, x: jax.Array, distances: jax.Array, length: jax.Array) -> jax.Array:
        """Applies it to x [B, S, D] of `length` [B], with embedded distances [1, 2 S - 1, D]."""
        size, queries = x.shape[1], self.queries(x)
        scale = queries.shape[-1] ** -0.5
        by_content, by_distance = (
            (queries + bias[:, None].astype(queries.dtype)) * scale
            for bias in (self.content_bias, self.distance_bias)
        )
        keys = split_heads(self.distance(distances), self.heads)
        bias = make_text_bias(RelativeScores(by_distance, keys, length), size, size)
        return self(by_content, *self.keys_values(x), bias)


class ConvolutionModule(nn.Module):
    """A gated and a depthwise convolution of x [B, S, D] where it is `inside` [B, S, 1]."""

    config: ConformerConfig

    @nn.compact
    def __call__(self, x: jax.Array, inside: jax.Array) -> jax.Array:
        c = self.config
        convolution = functools.partial(AudioConvolution, bias=c.convolution_bias, dtype=c.dtype)
        value, gate = jnp.split(convolution(2 * c.d_model, 1, 1, name="expansion")(x), 2, axis=-1)
        x = jnp.where(inside, value * jax.nn.sigmoid(gate), 0.0)
        x = convolution(c.d_model, c.taps, 1, c.taps // 2, groups=c.d_model, name="depthwise")(x)
        x = ACTIVATIONS[c.activation](BatchNorm(name="norm")(x))
        return convolution(c.d_model, 1, 1, name="projection")(x)


class ConformerLayer(nn.Module):
    """Half a feed-forward network, attention, convolution, half a feed-forward network, a norm."""

    config: ConformerConfig

    def setup(self) -> None:
        c = self.config
        self.first_ff, self.last_ff = (
            FeedForward(c.d_ff, c.activation, False, c.dtype, bias=c.bias) for _ in range(2)
        )
        self.self_attention, self.convolution = RelativeAttention(c), ConvolutionModule(c)
        self.first_norm, self.self_norm, self.convolution_norm, self.last_norm, self.norm = (
            LayerNorm() for _ in range(5)
        )

    def __call__(self, x: jax.Array, distances: jax.Array, length: jax.Array) -> jax.Array:
        """Runs the layer on x [B, S, D] of `length` [B]."""
        inside = (jnp.arange(x.shape[1]) < length[:, None])[..., None]
        x = x + 0.5 * self.first_ff(self.first_norm(x))
        x = x + self.self_attention.attend(self.self_norm(x), distances, length)
        x = x + self.convolution(self.convolution_norm(x), inside)
        return self.norm(x + 0.5 * self.last_ff(self.last_norm(x)))
