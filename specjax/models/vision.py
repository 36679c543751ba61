"""Image to text: an encoder of image patches before BART's decoder.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021), section 3.1; Touvron et al., "Training
Data-efficient Image Transformers" (2021), section 4; Li et al., "TrOCR" (2023), section 3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.bart import BartConfig, DecoderStack, EncoderLayer
from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, init_on_input
from specjax.models.info import ModelInfo, Patches
from specjax.models.layers import Dense, LayerNorm, multiply


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """Shape of an encoder of images."""

    family: str  # Hugging Face's `model_type`
    patches: Patches
    d_model: int
    encoder_ff: int
    encoder_heads: int
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
    def key_bias(self) -> bool:
        return self.qkv_bias

    @property
    def query_value_bias(self) -> bool:
        return self.qkv_bias

    def __post_init__(self) -> None:
        if self.d_model % self.encoder_heads:
            raise ValueError(
                f"num_attention_heads is {self.encoder_heads}; it must divide hidden_size,"
                f" {self.d_model}"
            )


@dataclasses.dataclass(frozen=True)
class ImageToTextConfig(BartConfig):
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


class ImageToTextModule(DecoderStack[ImageToTextConfig]):
    """Parameters and layers; `ImageToText` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config.encoder
        self.encoder_entrance = PatchInput(c)
        self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
        self.encoder_norm = LayerNorm(c.eps)
        if self.config.projected:
            self.encoder_projection = Dense(self.config.d_model, c.dtype, bias=True)

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        x = self.drop(self.encoder_entrance(source), deterministic=deterministic)
        bias = make_text_bias(LengthBias(length), x.shape[1], x.shape[1])
        x = self.run_encoder(x, [bias] * len(self.encoder), deterministic)
        x = self.encoder_norm(x)
        return self.encoder_projection(x) if self.config.projected else x


@dataclasses.dataclass(frozen=True)
class ImageToText(EncoderDecoder):
    """A model that reads images (`models.base`)."""

    config: ImageToTextConfig

    @property
    def module(self) -> ImageToTextModule:
        return ImageToTextModule(self.config)

    @property
    def info(self) -> ModelInfo:
        c = self.config
        own = {"max_positions": c.max_positions, "input": c.vision.patches}
        return dataclasses.replace(super().info, **own, drops_scale=c.final_norm)

    def init(self, key: jax.Array) -> Params:
        """Initializes float32 parameters."""
        return init_on_input(self.module, key, self.config.vision.patches)

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        embedded = super().embed(params, tokens)
        return embedded * self.config.d_model**0.5 if self.config.scale_embedding else embedded

    def count_states(self, length: jax.Array) -> jax.Array:
        return jnp.full_like(length, self.config.vision.patches.states)
