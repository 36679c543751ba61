"""Layers of EAGLE's drafters: the first reads embeddings next to states, the others states alone.

Each layer `read`s its residual stream, queries, keys and values, and is called with the keys and
values that it attends to. Dimension letters as in `models.on_target`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from specjax.models.norms import RMSNorm
from specjax.models.on_target import Layer

Inputs = tuple[Array, tuple[Array, Array, Array]]
"""A residual stream [B, T, D], and head-major queries, keys and values of T tokens."""


class EagleLayer(Layer[Any]):
    """Self-attention over embeddings beside states, on the residual stream of the states."""

    def setup(self) -> None:
        super().setup()
        eps = self.config.eps
        self.embedding_norm, self.state_norm = RMSNorm(eps), RMSNorm(eps)

    def read(
        self,
        embedded: Float[Array, "B T E"],
        before: Float[Array, "B T D"],
        angles: Float32[Array, "B T R"] | None,
    ) -> Inputs:
        """The residual stream, and queries, keys and values, of tokens and the states before."""
        parts = self.embedding_norm(embedded), self.state_norm(before)
        residual = parts[1] if self.config.normed_residual else before
        return residual, self.project_inputs(jnp.concatenate(parts, axis=-1), angles)


class PlainLayer(Layer[Any]):
    """Self-attention over states alone, as of any decoder."""

    def setup(self) -> None:
        super().setup()
        self.attention_norm = RMSNorm(self.config.eps)

    def read(self, x: Float[Array, "B T D"], angles: Float32[Array, "B T R"] | None) -> Inputs:
        """The residual stream, and queries, keys and values, of states [B, T, D]."""
        return x, self.project_inputs(self.attention_norm(x), angles)
