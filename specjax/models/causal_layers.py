"""Shape and layers of decoder-only transformers (models/causal.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, attention
from specjax.models.caches import KeysValues, read_on, update_cache
from specjax.models.experts import Experts, Mixture
from specjax.models.layers import (
    Dense,
    FeedForward,
    LayerNorm,
    RMSNorm,
    merge_heads,
    split_heads,
)
from specjax.models.positions import Rope, rotate


@dataclasses.dataclass(frozen=True)
class CausalConfig:
    """Shape of a decoder-only model."""

    family: str  # Hugging Face's `model_type`
    vocab_size: int
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_head: int
    max_positions: int
    rope: Rope | None = None  # None: learned positions
    ropes: tuple[Rope | None, ...] = ()  # of each layer, None: not rotated; empty: `rope` in all
    position_offset: int = 0  # rows of the table of learned positions before that of the first
    mixtures: tuple[Mixture | None, ...] = ()  # experts of each layer; None, or empty: none
    activation: str = "silu"
    gated: bool = True
    rms_norm: bool = True  # False: layer norm with bias
    unit_offset: bool = False  # root-mean-square norms keep what their scales exceed 1 by (Gemma)
    pre_norm: bool = True  # of what enters a sublayer
    post_norm: bool = False  # of what leaves it, before the residual is added
    residual_norm: bool = False  # of the sum with what leaves it (OPT-350m), instead of before
    final_norm: bool = True  # of the states behind the last layer
    qkv_bias: bool = False
    out_bias: bool = False
    ff_bias: bool = False
    qk_norm: bool = False  # root-mean-square norm of each query and key head
    wide_qk_norm: bool = False  # of all heads together, as one vector (OLMo 2)
    query_scale: float | None = None  # None: d_head ** -0.5
    query_scales: tuple[float, ...] = ()  # of each layer; empty: `query_scale` in all
    attention_cap: float = 0.0  # scores are soft-capped at it; 0: they are not
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    projected_width: int | None = None  # projected onto states and back; None: as wide as they
    parallel: bool = False  # attention and feed-forward read the same states (GPT-J, GPT-NeoX)
    windows: tuple[int, ...] = ()  # keys seen per layer, 0 for all; empty: all in every layer
    tied: bool = False
    eps: float = 1e-6
    dropout: float = 0.0
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training computes layers again for the gradient: less memory

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_kv_heads}; it must divide the"
                f" {self.num_heads} attention heads"
            )

    @property
    def layer_windows(self) -> tuple[int, ...]:
        return self.windows or (0,) * self.num_layers

    @property
    def layer_ropes(self) -> tuple[Rope | None, ...]:
        return self.ropes or (self.rope,) * self.num_layers

    @property
    def layer_query_scales(self) -> tuple[float, ...]:
        scale = self.d_head**-0.5 if self.query_scale is None else self.query_scale
        return self.query_scales or (scale,) * self.num_layers

    @property
    def layer_mixtures(self) -> tuple[Mixture | None, ...]:
        return self.mixtures or (None,) * self.num_layers


def norm(config: CausalConfig) -> nn.Module:
    """The norm of residual states."""
    return RMSNorm(config.eps, config.unit_offset) if config.rms_norm else LayerNorm(config.eps)


class Attention(nn.Module):
    """Projections, optional norms and rotation; `attention` does the rest."""

    config: CausalConfig
    rope: Rope | None  # None: nothing is rotated
    query_scale: float

    def setup(self) -> None:
        c = self.config
        self.q = Dense(c.num_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        self.k = Dense(c.num_kv_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        self.v = Dense(c.num_kv_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        self.o = Dense(c.d_model, c.dtype, bias=c.out_bias)
        if c.qk_norm or c.wide_qk_norm:
            self.q_norm = RMSNorm(c.eps, c.unit_offset)
            self.k_norm = RMSNorm(c.eps, c.unit_offset)

    def queries_keys_values(
        self, x: jax.Array, angles: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Scaled queries, keys and values, head-major."""
        c = self.config
        q, k = self.q(x), self.k(x)
        if c.wide_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = split_heads(q, c.num_heads), split_heads(k, c.num_kv_heads)
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None:
            if angles is None:
                raise ValueError("angles is None; rotary positions need those of their tokens")
            scale = self.rope.attention
            q, k = rotate(q, angles, scale), rotate(k, angles, scale)
        return q * self.query_scale, k, split_heads(self.v(x), c.num_kv_heads)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, mask: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, mask, self.config.attention_cap)))


class Layer(nn.Module):
    config: CausalConfig
    rope: Rope | None
    mixture: Mixture | None
    query_scale: float

    def setup(self) -> None:
        c = self.config
        if c.pre_norm or c.residual_norm:
            self.attention_norm, self.ff_norm = norm(c), norm(c)
        if c.post_norm:
            self.attention_post_norm, self.ff_post_norm = norm(c), norm(c)
        self.attention = Attention(c, self.rope, self.query_scale)
        if self.mixture is None:
            self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout, c.ff_bias)
        else:
            self.ff = Experts(self.mixture, c.activation, c.dtype)
        self.drop = nn.Dropout(c.dropout)

    def __call__(
        self,
        x: jax.Array,
        own: KeysValues | None,
        start: jax.Array | None,
        angles: jax.Array | None,
        mask: AnyBias,
        deterministic: bool = True,
        length: jax.Array | None = None,
    ) -> tuple[jax.Array, KeysValues]:
        """One layer on x [B, T, D]; without a cache `own` it attends among the T tokens.

        With `length` [B] they are a part of prompts that are so long.
        """
        q, k, v = self.queries_keys_values(x, angles)
        new = k, v
        if own is None or start is None:
            seen = kept = new
        elif length is not None:
            seen, kept = read_on(own, new, start, length)
        else:
            seen = kept = update_cache(own, new, start)
        h = self.attention(q, *seen, mask)
        h = self.attention_post_norm(h) if self.config.post_norm else h
        attended = x + self.drop(h, deterministic=deterministic)
        attended = self.attention_norm(attended) if self.config.residual_norm else attended
        h = x if self.config.parallel else attended
        h = self.ff(self.ff_norm(h) if self.config.pre_norm else h, deterministic)
        h = self.ff_post_norm(h) if self.config.post_norm else h
        x = attended + self.drop(h, deterministic=deterministic)
        return self.ff_norm(x) if self.config.residual_norm else x, kept

    def queries_keys_values(
        self, x: jax.Array, angles: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Those of the attention on the residual stream x [B, T, D]."""
        h = self.attention_norm(x) if self.config.pre_norm else x
        return self.attention.queries_keys_values(h, angles)

    def remember(
        self, x: jax.Array, own: KeysValues, start: jax.Array, angles: jax.Array | None
    ) -> KeysValues:
        """The cache `own` with keys and values of x [B, T, D] from `start` on."""
        _, k, v = self.queries_keys_values(x, angles)
        return update_cache(own, (k, v), start)
