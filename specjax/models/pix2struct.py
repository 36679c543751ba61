"""Pix2Struct: T5's layers after patches of an image of any shape.

Lee et al., "Pix2Struct: Screenshot Parsing as Pretraining for Visual Language Understanding"
(2023), section 2.2. An image is scaled so that as many patches as allowed cover it; each has an
embedding of its row and one of its column. So images differ in their number of patches, and the
encoder reads no padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.info import PlacedPatches
from specjax.models.layers import Dense
from specjax.models.norms import RMSNorm
from specjax.models.t5 import T5, DecoderStack, EncoderLayer, T5Config
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule

PLACE = 2
"""Numbers of a patch before its pixels: its row and its column, from 1."""


@dataclasses.dataclass(frozen=True)
class Pix2StructConfig(InputConfig, T5Config):
    """Shape of a Pix2Struct model; that of its encoder's `num_layers` layers is in `vision`."""

    vision: T5Config = dataclasses.field(kw_only=True)
    places: int = dataclasses.field(kw_only=True)  # rows and columns with an embedding, and 0
    pixels: int = dataclasses.field(kw_only=True)  # numbers of a patch

    @property
    def input(self) -> PlacedPatches:
        return PlacedPatches(self.places - 1, PLACE + self.pixels)

    @property
    def encoder_shape(self) -> Hashable:
        return self.encoder, self.places, self.pixels

    @property
    def encoder(self) -> T5Config:
        """The encoder's shape with its layers, and the dtype of this one."""
        own = {"num_layers": self.num_layers, "dtype": self.dtype, "remat": self.remat}
        return dataclasses.replace(self.vision, **own)


class PatchInput(nn.Module):
    """Maps patches [B, P, 2 + M] with their rows and columns to encoder inputs [B, P, D]."""

    places: int
    features: int
    dtype: jnp.dtype

    def setup(self) -> None:
        init, shape = nn.initializers.normal(0.02), (self.places, self.features)
        self.projection = Dense(self.features, self.dtype, bias=True)
        self.row_embedding = self.param("row_embedding", init, shape, jnp.float32)
        self.column_embedding = self.param("column_embedding", init, shape, jnp.float32)

    def __call__(self, patches: jax.Array) -> jax.Array:
        row, column = (patches[..., axis].astype(jnp.int32) for axis in range(PLACE))
        x = self.projection(patches[..., PLACE:])
        for table, place in ((self.row_embedding, row), (self.column_embedding, column)):
            x = x + jnp.take(table, place, axis=0, mode="clip").astype(self.dtype)
        return x


class Pix2StructModule(InputModule[Pix2StructConfig], DecoderStack[Pix2StructConfig]):
    """Parameters and layers; `Pix2Struct` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c, vision = self.config, self.config.encoder
        if c.encoder_use == OWN:
            self.encoder_entrance = PatchInput(c.places, vision.d_model, c.dtype)
            self.encoder_drop = nn.Dropout(vision.dropout)
            self.encoder = [EncoderLayer(vision) for _ in range(vision.num_layers)]
            self.encoder_norm = RMSNorm(vision.eps)

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x = self.encoder_drop(self.encoder_entrance(source), deterministic=deterministic)
        bias = make_text_bias(LengthBias(length), x.shape[1], x.shape[1])
        x = self.run_encoder(x, [bias] * len(self.encoder), deterministic)
        return self.encoder_norm(x)


@dataclasses.dataclass(frozen=True)
class Pix2Struct(InputModel, T5):
    """A Pix2Struct model (`models.base`)."""

    config: Pix2StructConfig
    module_class = Pix2StructModule
