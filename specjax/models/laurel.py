"""Learned augmented residual layers (Gemma 3n).

Menghani, Kumar and Kumar 2024, "LAuReL: Learned Augmented Residual Layer", the variant of low rank:
next to a sublayer's output, the sum gets the sublayer's input and a normed product of low rank.

Dimension letters as in `models.base`.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.models.layers import Dense
from specjax.models.norms import RMSNorm


class LowRankResidual(nn.Module):
    """Computes x plus its normed projection onto `rank` numbers and back."""

    rank: int
    eps: float
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        reduced = Dense(self.rank, self.dtype, name="reduction")(x)
        expanded = Dense(x.shape[-1], self.dtype, name="expansion")(reduced)
        return x + RMSNorm(self.eps, name="norm")(expanded)
