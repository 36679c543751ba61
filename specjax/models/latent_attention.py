"""Multi-head latent attention (MLA): keys and values of all heads from one vector of a token.

DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1 and appendix C. The cache has, for each token, a
normed latent vector and a rotated part, as the one key of all heads. Matrices that would expand it
to each head's keys and values are applied to queries and outputs instead (section 2.1.2), so that
nothing else is stored and attention is that of many queries to one key head.

B rows, T tokens, D model width, H heads, R rank of the latent vector, r rotated numbers, n and v
numbers of a head's other queries and of its values.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, attention
from specjax.models.layers import Dense, merge_heads, split_heads
from specjax.models.norms import RMSNorm
from specjax.models.positions import Rope, Turn, rotate

EPS = 1e-6
"""Of the norms of latent vectors, which no field of a configuration sets."""


@dataclasses.dataclass(frozen=True)
class Latent:
    """Shape of latent attention."""

    rank: int  # R
    rotated: int  # r, of each query and of the key
    plain: int  # n, of each query
    value: int  # v, of each head
    query_rank: int | None = None  # of the latent vector of all queries; None: there is none
    stretch: float = 0.0  # YaRN's `mscale_all_dim`, by which scores are scaled; 0: not

    @property
    def key_width(self) -> int:
        """Numbers of a token in the cache."""
        return self.rank + self.rotated


class LatentAttention(nn.Module):
    """Latent attention, with the interface of `causal_layers.Attention`."""

    shape: Latent
    heads: int
    features: int  # D
    rope: Rope
    query_scale: float
    bias: bool = False
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        s = self.shape
        if s.query_rank is not None:
            self.q_down = Dense(s.query_rank, self.dtype, bias=self.bias)
            self.q_norm = RMSNorm(EPS)
        self.q = Dense(self.heads * (s.plain + s.rotated), self.dtype)
        self.kv_down = Dense(s.key_width, self.dtype, bias=self.bias)
        self.kv_norm = RMSNorm(EPS)
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        self.k_up = self.param("k_up", init, (s.rank, self.heads * s.plain), jnp.float32)
        self.v_up = self.param("v_up", init, (s.rank, self.heads * s.value), jnp.float32)
        self.o = Dense(self.features, self.dtype, bias=self.bias)

    def queries_keys_values(
        self, x: jax.Array, turn: Turn | jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes scaled queries [B, H, T, R + r], keys [B, 1, T, R + r] and values of no width.

        The values are the first R numbers of the keys.
        """
        s = self.shape
        angles, factor = turn if isinstance(turn, Turn) else (turn, None)
        if angles is None:
            raise ValueError("latent attention requires the angles of the tokens")
        how = self.rope.attention, self.rope.interleaved
        states = x if s.query_rank is None else self.q_norm(self.q_down(x))
        q = split_heads(self.q(states), self.heads)
        plain, turning = q[..., : s.plain], q[..., s.plain :]
        latent, key = jnp.split(self.kv_down(x)[:, None], [s.rank], axis=-1)
        absorbed = jnp.einsum("bhtn,rhn->bhtr", plain, self._by_head(self.k_up))
        queries = jnp.concatenate([absorbed, rotate(turning, angles, *how)], axis=-1)
        keys = jnp.concatenate([self.kv_norm(latent), rotate(key, angles, *how)], axis=-1)
        if factor is not None:
            queries = queries * factor[:, None, :, None].astype(queries.dtype)
        return queries * self.query_scale, keys, keys[..., :0]

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        mask: AnyBias,
        x: jax.Array | None = None,
    ) -> jax.Array:
        """Attends to latent keys [B, 1, C, R + r]; a slice of outputs is cheaper than of keys."""
        del v, x
        mixed = attention(q, k, k, mask)[..., : self.shape.rank]
        values = jnp.einsum("bhtr,rhv->bhtv", mixed, self._by_head(self.v_up))
        return self.o(merge_heads(values))

    def _by_head(self, kernel: jax.Array) -> jax.Array:
        """Splits a kernel [R, H * d] into those of the heads, [R, H, d]."""
        return kernel.astype(self.dtype).reshape(self.shape.rank, self.heads, -1)
