"""Embeddings of tokens that each layer reads next to the residual stream.

Google, "Gemma 3n" (2025), and Gemma 4 E2B and E4B call them per-layer embeddings. One table holds
the vectors of all layers side by side; a projection of the token's own embedding is added to them.

Dimension letters as in `models.base`; N layers have a vector of width E for each token.
"""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.models.layers import ACTIVATIONS, Dense
from specjax.models.norms import RMSNorm


@dataclasses.dataclass(frozen=True)
class LayerInputs:
    """Shape of the embeddings that each layer reads."""

    width: int  # E
    vocab_size: int  # rows of their table; ids beyond it have the first


class LayerEmbedding(nn.Module):
    """Computes the vectors that the layers read."""

    shape: LayerInputs
    layers: int  # N
    eps: float
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        width = self.layers * self.shape.width
        init = nn.initializers.normal(0.02)
        shape = self.shape.vocab_size, width
        self.embedding = self.param("embedding", init, shape, jnp.float32)
        self.projection = Dense(width, self.dtype)
        self.norm = RMSNorm(self.eps)

    def __call__(
        self, tokens: Int[Array, "B T"], embedded: Float[Array, "B T D"]
    ) -> Float[Array, "N B T E"]:
        """Adds the tokens' vectors and projections of their embeddings, scaled to one variance."""
        split = *tokens.shape, self.layers, self.shape.width
        # Trained with the factor rounded to half precision, as that of embeddings is.
        scale = jnp.asarray(math.sqrt(self.shape.width), self.dtype)
        own = self.embedding[jnp.where(tokens < self.shape.vocab_size, tokens, 0)]
        own = own.astype(self.dtype) * scale
        projected = self.projection(embedded) * embedded.shape[-1] ** -0.5
        mixed = self.norm(projected.reshape(split)) + own.reshape(split)
        return jnp.moveaxis(mixed * 2**-0.5, 2, 0)


class LayerInputGate(nn.Module):
    """Computes what a layer adds to its residual stream from its vectors, gated by the stream."""

    activation: str
    eps: float
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], given: Float[Array, "B T E"]
    ) -> Float[Array, "B T D"]:
        gate = Dense(given.shape[-1], self.dtype, name="gating")(x)
        h = ACTIVATIONS[self.activation](gate) * given
        return RMSNorm(self.eps, name="norm")(Dense(x.shape[-1], self.dtype, name="projection")(h))
