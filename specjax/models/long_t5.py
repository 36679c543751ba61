"""LongT5: T5's decoder after an encoder of local attention.

Guo et al., "LongT5: Efficient Text-To-Text Transformer for Long Sequences" (2022), section 3. With
`transient-global` attention, tokens also attend to keys of G blocks of the text: the norm of the
sum of a block's states, which every layer computes anew.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models import t5
from specjax.models.base import Params
from specjax.models.layers import MASKED, init_params, merge_heads
from specjax.models.local_attention import (
    NearBias,
    attend_locally,
    compute_distances,
    mask_distances,
)
from specjax.models.norms import RMSNorm
from specjax.models.positions import RelativeBias
from specjax.models.t5 import T5, T5Config, T5Module


@dataclasses.dataclass(frozen=True)
class LongT5Config(T5Config):
    """Shape of a LongT5 model."""

    family: str = "longt5"
    radius: int = 127  # tokens before and after that a token of the encoder attends to
    global_block: int = 0  # tokens per block of transient-global attention; 0: local attention


class TextBlocks(struct.PyTreeNode):
    """The bias of keys of the text's blocks, and which tokens are in which block."""

    number: Int32[Array, "B S"]  # block of each token; -1: none
    count: Int32[Array, " B"]  # blocks of each row
    table: Float32[Array, "H 2*G-1"]  # bias by `key's block - query's block`

    @property
    def most(self) -> int:
        """G, blocks of the longest text."""
        return (self.table.shape[1] + 1) // 2

    def sum_states(self, x: Float[Array, "B S D"]) -> Float[Array, "B G D"]:
        """Sums the states of each block."""
        member = self.number[..., None] == jnp.arange(self.most)
        return jnp.einsum("bsd,bsg->bgd", x, member.astype(x.dtype))

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        padded = jnp.pad(self.number, ((0, 0), (0, queries)), constant_values=-1)
        own = jax.lax.dynamic_slice_in_dim(padded, query, queries, axis=1)
        place = key + jnp.arange(keys)
        bias = jnp.take(self.table, place - own[..., None] + self.most - 1, axis=1, mode="clip")
        hidden = jnp.where(place >= self.count[:, None], MASKED, 0.0)
        return jnp.moveaxis(bias, 0, 1) + hidden[:, None, None]


EncoderBias = tuple[NearBias, TextBlocks | None]
"""Bias of the encoder's attention to the neighborhood, and to blocks of the text."""


class EncoderLayer(t5.EncoderLayer):
    """Attention to the neighborhood, and perhaps to blocks of the text."""

    def setup(self) -> None:
        super().setup()
        if self.config.global_block:
            self.block_norm = RMSNorm(self.config.eps)

    def attend(self, h: jax.Array, angles: jax.Array | None, bias: EncoderBias) -> jax.Array:
        own, others, (near, blocks) = self.self_attention, [], bias
        if blocks is not None:
            others = [(*own.keys_values(self.block_norm(blocks.sum_states(h))), blocks)]
        mixed = attend_locally(own.queries(h), *own.keys_values(h), near, others)
        return own.o(merge_heads(mixed))


class LongT5Module(T5Module[LongT5Config]):
    """Parameters and layers; `LongT5` implements the model interface."""

    encoder_layer: ClassVar[type[t5.EncoderLayer]] = EncoderLayer

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.global_block:
            self.block_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, True)

    def make_source_biases(self, length: jax.Array, size: int) -> list[Any]:
        """Builds the encoder layers' biases by distance and by blocks of rows of `length` [B]."""
        width = min(self.config.radius + 1, size)
        distance, mask = compute_distances(width), mask_distances(width, self.config.radius)
        blocks = self.make_text_blocks(length, size)
        return self.make_layer_biases(
            self.encoder_bias,
            self.encoder,
            lambda table: (NearBias(table(distance) + mask, length), blocks),
        )

    def make_text_blocks(self, length: jax.Array, size: int) -> TextBlocks | None:
        """Assigns tokens to blocks; those after a row's last whole block are in that one."""
        block = self.config.global_block
        most = size // block if block else 0
        if not most:
            return None
        count, position = length // block, np.arange(size)
        number = jnp.minimum(number_blocks(size, block), count[:, None] - 1)
        number = jnp.where(position < length[:, None], number, -1)
        return TextBlocks(number, count, self.block_bias(np.arange(1 - most, most)))


def number_blocks(size: int, block: int) -> np.ndarray:
    """Numbers the blocks of `size` positions by sums of float32, as transformers does.

    They are `position // block` where `block` is a power of two, as in published models.
    """
    part = np.float32(1) / np.float32(block)
    sums = np.cumsum(np.full(size, part, np.float64)).astype(np.float32)
    return np.floor(np.float32(1) + (sums - part) - np.float32(1)).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class LongT5(T5):
    """A LongT5 model (`models.base`)."""

    config: LongT5Config

    @property
    def module(self) -> LongT5Module:
        return LongT5Module(self.config)

    def init(self, key: jax.Array) -> Params:
        """Initializes float32 parameters, with a prompt of one block."""
        size = self.config.global_block or 1
        return init_params(self.module, key, (1, size), (1,), (1, 1))
