"""Pegasus-X: Pegasus after an encoder of attention in blocks, with learned global tokens.

Phang et al., "Investigating Efficiently Extending Transformers for Long Input Summarization"
(2022), section 3. Tokens attend to their block and to G global tokens, which attend to all and have
states of their own. In every other layer blocks begin half a block earlier.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models import bart
from specjax.models.attention import AnyBias, LengthBias, attention, make_text_bias
from specjax.models.bart import Bart, BartConfig, BartModule, make_norm
from specjax.models.layers import merge_heads
from specjax.models.local_attention import NearBias, attend_locally


@dataclasses.dataclass(frozen=True, kw_only=True)
class PegasusXConfig(BartConfig):
    """Shape of a Pegasus-X model."""

    global_tokens: int
    block: int  # tokens
    staggered: bool = True  # blocks of every other layer begin half a block earlier

    def get_shift(self, layer: int) -> int:
        """Returns by how many tokens the blocks of an encoder layer begin earlier."""
        return self.block // 2 if self.staggered and layer % 2 else 0


class SplitNorm(nn.Module):
    """Norms of the G global tokens, which come first, and of the others."""

    config: PegasusXConfig

    def setup(self) -> None:
        self.of_global, self.of_tokens = make_norm(self.config), make_norm(self.config)

    def __call__(self, x: jax.Array) -> jax.Array:
        count = self.config.global_tokens
        parts = self.of_global(x[:, :count]), self.of_tokens(x[:, count:])
        return jnp.concatenate(parts, axis=1)


class EncoderLayer(bart.EncoderLayer):
    """A layer on states [B, G + S, D], of the global tokens first."""

    shift: int

    def make_self_norm(self) -> nn.Module:
        return SplitNorm(self.config)

    def attend(self, h: jax.Array, angles: jax.Array | None, bias: NearBias) -> jax.Array:
        own, count, shift = self.self_attention, self.config.global_tokens, self.shift
        q, (k, v) = own.queries(h), own.keys_values(h)
        whole = make_text_bias(LengthBias(bias.length - shift + count), count, h.shape[1])
        of_global = attention(q[:, :, :count], k, v, whole)
        bias_of_global = LengthBias(jnp.full_like(bias.length, count))
        others = [(k[:, :, :count], v[:, :, :count], bias_of_global)]
        q, k, v = (
            jnp.pad(x[:, :, count:], ((0, 0), (0, 0), (shift, 0), (0, 0))) for x in (q, k, v)
        )
        mixed = attend_locally(q, k, v, bias, others, first=shift)[:, :, shift:]
        return own.o(merge_heads(jnp.concatenate([of_global, mixed], axis=2)))


class PegasusXModule(BartModule[PegasusXConfig]):
    """Parameters and layers; `PegasusX` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        init, shape = nn.initializers.normal(0.02), (self.config.global_tokens, self.config.d_model)
        self.global_embedding = self.param("global_embedding", init, shape, jnp.float32)

    def make_encoder_layer(self, number: int) -> EncoderLayer:
        return EncoderLayer(self.config, shift=self.config.get_shift(number))

    def make_source_biases(self, length: jax.Array, size: int) -> list[NearBias]:
        """Builds biases of blocks; their lengths count the tokens that a layer's shift adds."""

        def build(shift: int) -> NearBias:
            width = min(self.config.block, size + shift)
            return NearBias(jnp.zeros((1, width, width), jnp.float32), length + shift)

        return [build(self.config.get_shift(number)) for number in range(self.config.num_layers)]

    def run_encoder(
        self,
        x: jax.Array,
        biases: Sequence[AnyBias],
        deterministic: bool,
        angles: Sequence[jax.Array | None] | None = None,
    ) -> jax.Array:
        """Runs the layers with global tokens before the others, and returns the others' states."""
        added = jnp.broadcast_to(
            self.global_embedding.astype(x.dtype), (len(x), *self.global_embedding.shape)
        )
        x = super().run_encoder(jnp.concatenate([added, x], axis=1), biases, deterministic, angles)
        return x[:, self.config.global_tokens :]


@dataclasses.dataclass(frozen=True)
class PegasusX(Bart):
    """A Pegasus-X model (`models.base`)."""

    config: PegasusXConfig

    @property
    def module(self) -> PegasusXModule:
        return PegasusXModule(self.config)
