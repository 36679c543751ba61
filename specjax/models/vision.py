"""Image to text: an encoder of image patches before BART's decoder.

Li et al., "TrOCR: Transformer-based Optical Character Recognition" (2023), section 3; Kim et al.,
"OCR-free Document Understanding Transformer" (2022), section 3.2. Encoders are in `vit.py` and
`swin.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.bart import Bart, BartConfig, DecoderStack
from specjax.models.info import Patches
from specjax.models.layers import Dense, multiply
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """Shape of an encoder of images, of any architecture."""

    family: str  # Hugging Face's `model_type`
    patches: Patches
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.0
    qkv_bias: bool = True
    dtype: Any = jnp.float32
    remat: bool = False

    @property
    def width(self) -> int:
        """Width of the encoder's states."""
        raise NotImplementedError

    @property
    def num_heads(self) -> int:
        """Attention heads; of stages their greatest common divisor."""
        raise NotImplementedError

    @property
    def d_ff(self) -> int:
        """Width inside of feed-forward networks; of stages their greatest common divisor."""
        raise NotImplementedError

    def make_module(self) -> nn.Module:
        """A module that computes states [B, S, D] of patches [B, P, M], `deterministic` or not."""
        raise NotImplementedError


class PatchProjection(nn.Module):
    """Projects patches [B, P, M] to states [B, P, D]: a convolution in steps of a patch."""

    patches: Patches
    features: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, pixels: jax.Array) -> jax.Array:
        grid = self.patches
        shape = grid.breadth, grid.height, grid.channels, self.features
        kernel = self.param("kernel", nn.initializers.normal(0.02), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        flat = kernel.astype(self.dtype).reshape(grid.width, self.features)
        return multiply(pixels.astype(self.dtype), flat) + bias.astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class ImageToTextConfig(InputConfig, BartConfig):
    """Shape of a model that writes what an image shows; `d_model` is the decoder's."""

    vision: VisionConfig = dataclasses.field(kw_only=True)
    projected: bool = False  # encoder states are projected to the decoder's width

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"decoder_attention_heads is {self.num_heads}; it must divide d_model,"
                f" {self.d_model}"
            )

    @property
    def input(self) -> Patches:
        return self.vision.patches

    @property
    def encoder_shape(self) -> Hashable:
        return self.encoder, self.projected and self.d_model

    @property
    def encoder_width(self) -> int:
        return self.d_model if self.projected else self.vision.width

    @property
    def encoder(self) -> VisionConfig:
        """The encoder's shape with the dtype of this one."""
        return dataclasses.replace(self.vision, dtype=self.dtype, remat=self.remat)


class ImageToTextModule(InputModule[ImageToTextConfig], DecoderStack[ImageToTextConfig]):
    """Parameters and layers; `ImageToText` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.encoder_use == OWN:
            self.encoder = c.encoder.make_module()
            if c.projected:
                self.encoder_projection = Dense(c.d_model, c.dtype, bias=True)

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x = self.encoder(source, deterministic)
        return self.encoder_projection(x) if self.config.projected else x


@dataclasses.dataclass(frozen=True)
class ImageToText(InputModel, Bart):
    """A model that reads images (`models.base`)."""

    config: ImageToTextConfig
    module_class = ImageToTextModule
