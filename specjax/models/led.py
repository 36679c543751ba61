"""LED: BART's decoder after an encoder of local attention with global tokens.

Beltagy et al., "Longformer: The Long-Document Transformer" (2020), sections 3.1 and 7. Each token
attends to half a window before and after it, and to the G global tokens, the first of the prompt.
These attend to the whole prompt by projections of their own.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.models import bart
from specjax.models.attention import LengthBias, attention, make_text_bias
from specjax.models.bart import Bart, BartConfig, BartModule
from specjax.models.layers import Dense, merge_heads, split_heads
from specjax.models.local_attention import NearBias, attend_locally, mask_distances


@dataclasses.dataclass(frozen=True, kw_only=True)
class LEDConfig(BartConfig):
    """Shape of an LED model; `max_positions` are the decoder's."""

    reaches: tuple[int, ...]  # tokens before and after that an encoder layer's tokens attend to
    global_tokens: int = 0  # first tokens of a prompt that attend to all, and all to them


class Attention(bart.Attention):
    """The encoder's attention, with further projections of global tokens."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.global_q, self.global_k, self.global_v = (
            Dense(c.d_model, c.dtype, bias=True) for _ in range(3)
        )

    def attend_globally(self, h: jax.Array, length: jax.Array, count: int) -> jax.Array:
        """Attends the first `count` tokens of h [B, S, D] to all; returns [B, H, count, d]."""
        whole = h if count else h[:, :0]
        q = split_heads(self.global_q(h[:, :count]), self.heads)
        k, v = (
            split_heads(project(whole), self.heads) for project in (self.global_k, self.global_v)
        )
        bias = make_text_bias(LengthBias(length), count, whole.shape[1])
        return attention(q * q.shape[-1] ** -0.5, k, v, bias) if count else q


class EncoderLayer(bart.EncoderLayer):
    attention: ClassVar[type[bart.Attention]] = Attention

    def attend(self, h: jax.Array, angles: jax.Array | None, bias: NearBias) -> jax.Array:
        own, count = self.self_attention, min(self.config.global_tokens, h.shape[1])
        k, v = own.keys_values(h)
        others = [(k[:, :, :count], v[:, :, :count], LengthBias(bias.length))] if count else []
        mixed = attend_locally(own.queries(h), k, v, bias, others, first=count)
        of_global = own.attend_globally(h, bias.length, count)
        return own.o(merge_heads(jnp.concatenate([of_global, mixed[:, :, count:]], axis=2)))


class LEDModule(BartModule[LEDConfig]):
    """Parameters and layers; `LED` implements the model interface."""

    def make_encoder_layer(self, number: int) -> EncoderLayer:
        return EncoderLayer(self.config)

    def make_source_biases(self, length: jax.Array, size: int) -> list[NearBias]:
        def build(reach: int) -> NearBias:
            return NearBias(jnp.asarray(mask_distances(min(reach, size), reach)), length)

        made = {reach: build(reach) for reach in set(self.config.reaches)}
        return [made[reach] for reach in self.config.reaches]


@dataclasses.dataclass(frozen=True)
class LED(Bart):
    """An LED model (`models.base`)."""

    config: LEDConfig

    @property
    def module(self) -> LEDModule:
        return LEDModule(self.config)
