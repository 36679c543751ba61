"""Image to text: an encoder of image patches before BART's decoder.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021), section 3.1; Touvron et al., "Training
Data-efficient Image Transformers" (2021), section 4; Li et al., "TrOCR" (2023), section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.bart import EncoderLayer
from specjax.models.info import Patches
from specjax.models.layers import Dense, LayerNorm, multiply
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """Shape of an encoder of images."""

    family: str  # Hugging Face's `model_type`
    patches: Patches
    d_model: int
    d_ff: int
    num_heads: int
    num_layers: int
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.0
    qkv_bias: bool = True
    distilled: bool = False  # a distillation token follows the class token
    dtype: Any = jnp.float32
    # What `EncoderLayer` reads and no encoder of images varies.
    post_norm: bool = dataclasses.field(default=False, init=False)
    ff_dropout: float = dataclasses.field(default=0.0, init=False)

    @property
    def encoder_heads(self) -> int:
        return self.num_heads

    @property
    def encoder_ff(self) -> int:
        return self.d_ff

    @property
    def key_bias(self) -> bool:
        return self.qkv_bias

    @property
    def query_value_bias(self) -> bool:
        return self.qkv_bias

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_heads}; it must divide hidden_size,"
                f" {self.d_model}"
            )


@dataclasses.dataclass(frozen=True)
class ImageToTextConfig(InputConfig):
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
        return self.d_model if self.projected else self.vision.d_model

    @property
    def encoder(self) -> VisionConfig:
        """The encoder's shape with the dtype of this one."""
        return dataclasses.replace(self.vision, dtype=self.dtype)


class PatchInput(nn.Module):
    """Maps patches [B, P, M] to encoder inputs [B, S, D]: learned tokens, then projected patches.

    Positions are learned (Dosovitskiy et al., equation 1).
    """

    config: VisionConfig

    @nn.compact
    def __call__(self, pixels: jax.Array) -> jax.Array:
        c, init = self.config, nn.initializers.normal(0.02)
        grid = c.patches
        shape = grid.breadth, grid.height, grid.channels, c.d_model
        kernel = self.param("kernel", init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (c.d_model,), jnp.float32)
        flat = kernel.astype(c.dtype).reshape(grid.width, c.d_model)
        x = multiply(pixels.astype(c.dtype), flat) + bias.astype(c.dtype)
        names = ("class_token", "distillation_token")[: 1 + c.distilled]
        first = [self.param(name, init, (1, 1, c.d_model), jnp.float32) for name in names]
        first = [jnp.broadcast_to(token, (len(x), 1, c.d_model)) for token in first]
        x = jnp.concatenate([*(token.astype(c.dtype) for token in first), x], axis=1)
        shape = 1, grid.states, c.d_model
        position = self.param("position_embedding", init, shape, jnp.float32)
        return x + position.astype(c.dtype)


class ImageToTextModule(InputModule[ImageToTextConfig]):
    """Parameters and layers; `ImageToText` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config.encoder
        if self.config.encoder_use == OWN:
            self.encoder_entrance = PatchInput(c)
            self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
            self.encoder_norm = LayerNorm(c.eps)
            if self.config.projected:
                self.encoder_projection = Dense(self.config.d_model, c.dtype, bias=True)

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x = self.drop(self.encoder_entrance(source), deterministic=deterministic)
        bias = make_text_bias(LengthBias(length), x.shape[1], x.shape[1])
        x = self.run_encoder(x, [bias] * len(self.encoder), deterministic)
        x = self.encoder_norm(x)
        return self.encoder_projection(x) if self.config.projected else x


@dataclasses.dataclass(frozen=True)
class ImageToText(InputModel):
    """A model that reads images (`models.base`)."""

    config: ImageToTextConfig
    module_class = ImageToTextModule
