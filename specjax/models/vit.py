"""Vision transformers: attention among all patches of an image.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021), section 3.1; Touvron et al., "Training
Data-efficient Image Transformers" (2021), section 4.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.bart import EncoderLayer
from specjax.models.layers import rematerialize
from specjax.models.norms import LayerNorm
from specjax.models.vision import PatchProjection, VisionConfig


@dataclasses.dataclass(frozen=True)
class VitConfig(VisionConfig):
    """Shape of a ViT or DeiT."""

    d_model: int = dataclasses.field(kw_only=True)
    ff: int = dataclasses.field(kw_only=True)
    attention_heads: int = dataclasses.field(kw_only=True)
    num_layers: int = dataclasses.field(kw_only=True)
    distilled: bool = False  # a distillation token follows the class token

    def __post_init__(self) -> None:
        if self.d_model % self.attention_heads:
            raise ValueError(
                f"num_attention_heads is {self.attention_heads}; it must divide hidden_size,"
                f" {self.d_model}"
            )

    @property
    def width(self) -> int:
        return self.d_model

    @property
    def num_heads(self) -> int:
        return self.attention_heads

    @property
    def d_ff(self) -> int:
        return self.ff

    def make_module(self) -> nn.Module:
        return Vit(self)

    # What `EncoderLayer` reads.
    post_norm, ff_dropout, output_bias, norm_bias = False, 0.0, True, True
    rope = d_head = encoder_activation = None

    @property
    def encoder_heads(self) -> int:
        return self.attention_heads

    @property
    def encoder_ff(self) -> int:
        return self.ff

    @property
    def key_bias(self) -> bool:
        return self.qkv_bias

    @property
    def query_value_bias(self) -> bool:
        return self.qkv_bias


class Vit(nn.Module):
    """Learned tokens and positions, layers, a final norm (Dosovitskiy et al., equations 1 to 4)."""

    config: VitConfig

    @nn.compact
    def __call__(self, pixels: jax.Array, deterministic: bool = True) -> jax.Array:
        """Computes states [B, S, D] of patches [B, P, M], those of the learned tokens first."""
        c = self.config

        def one(layer: EncoderLayer, x: jax.Array) -> jax.Array:
            return layer(x, None, bias, deterministic)

        x = self._add_tokens(PatchProjection(c.patches, c.d_model, c.dtype, name="patches")(pixels))
        x = nn.Dropout(c.dropout)(x, deterministic=deterministic)
        length = jnp.full(len(x), x.shape[1])
        bias = make_text_bias(LengthBias(length), x.shape[1], x.shape[1])
        for number in range(c.num_layers):
            x = rematerialize(one, c.remat)(EncoderLayer(c, name=f"layers_{number}"), x)
        return LayerNorm(c.eps, name="norm")(x)

    def _add_tokens(self, x: jax.Array) -> jax.Array:
        """Puts the learned tokens before the patches x [B, P, D], and adds positions."""
        c, init = self.config, nn.initializers.normal(0.02)
        names = ("class_token", "distillation_token")[: 1 + c.distilled]
        first = [self.param(name, init, (1, 1, c.d_model), jnp.float32) for name in names]
        first = [jnp.broadcast_to(token, (len(x), 1, c.d_model)) for token in first]
        x = jnp.concatenate([*(token.astype(c.dtype) for token in first), x], axis=1)
        shape = 1, c.patches.states, c.d_model
        position = self.param("position_embedding", init, shape, jnp.float32)
        return x + position.astype(c.dtype)
