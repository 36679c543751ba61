"""Layers of decoder-only transformers (models/causal.py)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, attention
from specjax.models.caches import read_on, update_cache
from specjax.models.causal_config import CausalConfig
from specjax.models.experts import Experts, Mixture
from specjax.models.latent_attention import LatentAttention
from specjax.models.laurel import LowRankResidual
from specjax.models.layer_inputs import LayerInputGate
from specjax.models.layers import Dense, FeedForward, merge_heads, split_heads
from specjax.models.norms import LayerNorm, RMSNorm, normalize_mean_square
from specjax.models.positions import Rope, Turn, rotate
from specjax.models.recurrent_caches import Entries, LayerCache, LayerKeysValues, RecurrentCache
from specjax.models.recurrent_layers import Recurrence


def make_norm(config: CausalConfig) -> nn.Module:
    """Creates the norm of residual states, or of heads."""
    if config.rms_norm:
        return RMSNorm(config.eps, config.unit_offset)
    return LayerNorm(config.eps, config.norm_scale, config.norm_bias)


class Attention(nn.Module):
    """Self-attention: projections, optional norms and rotation, `attention`."""

    config: CausalConfig
    rope: Rope | None  # None: nothing is rotated
    query_scale: float

    def setup(self) -> None:
        c = self.config
        self.q = Dense(c.num_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        self.o = Dense(c.d_model, c.dtype, bias=c.out_bias)
        self.q_norm = self._make_head_norm(c.num_heads)
        if not c.reads_cache:
            self.k = Dense(c.num_kv_heads * c.d_head, c.dtype, bias=c.qkv_bias)
            self.k_norm = self._make_head_norm(c.num_kv_heads)
            if not c.values_are_keys:
                self.v = Dense(c.num_kv_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        if c.gated_attention:
            self.gate = Dense(c.num_heads * c.d_head, c.dtype, bias=c.qkv_bias)
        if c.sinks:
            self.sinks = self.param("sinks", nn.initializers.zeros, (c.num_heads,), jnp.float32)

    def _make_head_norm(self, heads: int) -> nn.Module | None:
        """Creates the norm of query or key heads, if they have one."""
        c = self.config
        if c.head_norms:
            return LayerNorm(c.eps, has_bias=False, heads=heads)
        return make_norm(c) if c.qk_norm or c.wide_qk_norm else None

    def queries_keys_values(
        self, x: jax.Array, turn: Turn | jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes scaled queries, keys and values, head-major."""
        keys, angles = self._clip(self.k(x)), turn.angles if isinstance(turn, Turn) else turn
        k = self._make_heads(keys, self.k_norm, self.config.num_kv_heads, angles)
        return self.queries(x, turn), k, self._read_values(x, keys)

    def queries(self, x: jax.Array, turn: Turn | jax.Array | None) -> jax.Array:
        """Computes scaled queries, head-major."""
        angles, factor = turn if isinstance(turn, Turn) else (turn, None)
        q = self._make_heads(self._clip(self.q(x)), self.q_norm, self.config.num_heads, angles)
        if factor is not None:
            q = q * factor[:, None, :, None].astype(q.dtype)
        return q * self.query_scale

    def _make_heads(
        self, x: jax.Array, norm: nn.Module | None, heads: int, angles: jax.Array | None
    ) -> jax.Array:
        """Splits projections x [B, T, H * d] into normed and rotated heads [B, H, T, d]."""
        wide = self.config.wide_qk_norm
        x = split_heads(norm(x) if norm and wide else x, heads)
        x = norm(x) if norm and not wide else x
        if self.rope is None:
            return x
        if angles is None:
            raise ValueError("angles is None; rotary positions require the angles of the tokens")
        x = rotate(x, angles, self.rope.attention, self.rope.interleaved)
        return self._normalize_plainly(x) if self.config.rotated_norm else x

    def _read_values(self, x: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes values, head-major; `keys` are those before their norm and rotation."""
        c = self.config
        v = split_heads(keys if c.values_are_keys else self._clip(self.v(x)), c.num_kv_heads)
        return self._normalize_plainly(v) if c.value_norm else v

    def _normalize_plainly(self, x: jax.Array) -> jax.Array:
        return normalize_mean_square(x, self.config.eps).astype(x.dtype)

    def _clip(self, x: jax.Array) -> jax.Array:
        limit = self.config.qkv_clip
        return jnp.clip(x, -limit, limit) if limit else x

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        mask: AnyBias,
        x: jax.Array | None = None,
    ) -> jax.Array:
        """Attends to keys and values; gated attention reads the queries' states x [B, T, D] too."""
        sinks = self.sinks.astype(jnp.float32)[None, :, None, None] if self.config.sinks else None
        mixed = merge_heads(attention(q, k, v, mask, self.config.attention_cap, sinks))
        if self.config.gated_attention:
            assert x is not None
            mixed = mixed * jax.nn.sigmoid(self.gate(x))
        return self.o(mixed)


def make_attention(
    config: CausalConfig, rope: Rope | None, query_scale: float
) -> Attention | LatentAttention:
    """Creates a layer's attention."""
    c = config
    if c.latent is None:
        return Attention(c, rope, query_scale)
    assert rope is not None
    widths = c.num_heads, c.d_model
    return LatentAttention(c.latent, *widths, rope, query_scale, c.qkv_bias, c.dtype)


class Layer(nn.Module):
    """A mixer, which is attention or a recurrence, and a feed-forward; or one of the two."""

    config: CausalConfig
    rope: Rope | None
    mixture: Mixture | None
    query_scale: float
    recurrence: Recurrence | None = None  # in place of attention

    def setup(self) -> None:
        c = self.config
        if c.has_mixer:
            self._make_mixer()
            if c.laurel_rank:
                self.laurel = LowRankResidual(c.laurel_rank, c.eps, c.dtype)
        if self.has_feed_forward:
            self._make_feed_forward()
        self.drop = nn.Dropout(c.dropout)
        if c.layer_inputs:
            self.input_gate = LayerInputGate(c.activation, c.eps, c.dtype)
        if c.layer_scale:
            self.scale = self.param("scale", nn.initializers.ones, (1,), jnp.float32)

    @property
    def has_feed_forward(self) -> bool:
        return self.mixture is not None or self.config.d_ff > 0

    def _make_mixer(self) -> None:
        c = self.config
        if c.pre_norm or c.residual_norm:
            self.attention_norm = make_norm(c)
        if c.post_norm:
            self.attention_post_norm = make_norm(c)
        if self.recurrence is None:
            self.attention = make_attention(c, self.rope, self.query_scale)
        else:
            self.recurrent = self.recurrence.make_layer(c.d_model, c.activation, c.eps, c.dtype)

    def _make_feed_forward(self) -> None:
        c = self.config
        if c.pre_norm or c.residual_norm:
            self.ff_norm = self.attention_norm if c.shared_norm else make_norm(c)
        if c.post_norm:
            self.ff_post_norm = make_norm(c)
        if self.mixture is None:
            how = c.activation, c.gated, c.dtype, c.dropout, c.ff_bias
            self.ff = FeedForward(c.d_ff, *how, sparsity=c.sparsity)
        else:
            self.ff = Experts(self.mixture, c.activation, c.dtype)

    def __call__(
        self,
        x: jax.Array,
        own: LayerCache | None,
        start: jax.Array | None,
        turn: Turn | jax.Array | None,
        mask: Any,
        deterministic: bool = True,
        length: jax.Array | None = None,
        given: jax.Array | None = None,
        shared: LayerKeysValues | None = None,
    ) -> tuple[jax.Array, Any, LayerKeysValues | None]:
        """Runs the layer on x [B, T, D]; without a cache `own` the T tokens attend to each other.

        Returns the states, what the cache holds afterwards, and all keys and values attended to.
        With `length` [B] the tokens are a chunk of prompts of that length. The `mask` of a
        recurrent layer are the paths [B, T, N] of a tree's tokens; None: a chain. `given` are the
        layer's embeddings [B, T, E]; `shared` are the keys and values of an earlier layer, in place
        of its own.
        """
        if not self.config.has_mixer:
            return self.add_feed_forward(x, x, deterministic), None, None
        if self.recurrence is not None:
            h, made = self.recur(x, own, start, mask, length)
            return self.add_mixed(x, h, deterministic, given), made, None
        if shared is not None:
            q = self.attention.queries(self.normalize(x), turn)
            return self.add_sublayers(x, q, *shared, mask, deterministic, given), None, shared
        assert not isinstance(own, RecurrentCache)
        q, k, v = self.queries_keys_values(x, turn)
        new = k, v
        if own is None or start is None:
            visible = kept = new
        elif length is not None:
            visible, kept = read_on(own, new, start, length)
        else:
            visible = kept = update_cache(own, new, start)
        return self.add_sublayers(x, q, *visible, mask, deterministic, given), kept, visible

    def recur(
        self,
        x: jax.Array,
        own: LayerCache | None,
        start: jax.Array | None,
        visible: jax.Array | None,
        length: jax.Array | None,
    ) -> tuple[jax.Array, Entries | RecurrentCache]:
        """Mixes the residual stream x [B, T, D] by the recurrence; returns its cache or entries."""
        h = self.normalize(x)
        if not isinstance(own, RecurrentCache) or start is None:
            return self.recurrent(h)
        if length is not None:
            return self.recurrent.read_on(h, own, start, length)
        return self.recurrent.extend(h, own, start, visible)

    def normalize(self, x: jax.Array) -> jax.Array:
        """Computes the input of attention or recurrence from the residual stream x [B, T, D]."""
        return self.attention_norm(x) if self.config.pre_norm else x

    def add_sublayers(
        self,
        x: jax.Array,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        mask: AnyBias,
        deterministic: bool = True,
        given: jax.Array | None = None,
    ) -> jax.Array:
        """x [B, T, D] with attention to keys and values [B, G, C, d], and feed-forward, added."""
        h = self.attention(q, k, v, mask, self.normalize(x))
        return self.add_mixed(x, h, deterministic, given)

    def add_mixed(
        self,
        x: jax.Array,
        h: jax.Array,
        deterministic: bool = True,
        given: jax.Array | None = None,
    ) -> jax.Array:
        """x [B, T, D] with the output h of attention or recurrence, and feed-forward, added."""
        h = self.attention_post_norm(h) if self.config.post_norm else h
        attended = self._add(x, h, deterministic)
        if self.config.laurel_rank:
            attended = (attended + self.laurel(self.normalize(x))) * 2**-0.5
        attended = self.attention_norm(attended) if self.config.residual_norm else attended
        if not self.has_feed_forward:
            return attended
        read = x if self.config.parallel else attended
        return self.add_feed_forward(attended, read, deterministic, given)

    def add_feed_forward(
        self, attended: jax.Array, x: jax.Array, deterministic: bool, given: jax.Array | None = None
    ) -> jax.Array:
        """States [B, T, D] with the feed-forward of x, and what layer inputs give, added."""
        h = self.ff(self.ff_norm(x) if self.config.pre_norm else x, deterministic)
        h = self.ff_post_norm(h) if self.config.post_norm else h
        x = self._add(attended, h, deterministic)
        x = x if given is None else x + self.input_gate(x, given)
        x = x * self.scale.astype(x.dtype) if self.config.layer_scale else x
        return self.ff_norm(x) if self.config.residual_norm else x

    def _add(self, x: jax.Array, h: jax.Array, deterministic: bool) -> jax.Array:
        """x [B, T, D] with what a sublayer computed, h, added."""
        scale = self.config.residual_scale
        h = self.drop(h, deterministic=deterministic)
        return x + (h if scale == 1.0 else h * scale)

    def queries_keys_values(
        self, x: jax.Array, turn: Turn | jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes queries, keys and values of the residual stream x [B, T, D]."""
        return self.attention.queries_keys_values(self.normalize(x), turn)

    def write_cache(
        self, x: jax.Array, own: LayerCache, start: jax.Array, turn: Turn | jax.Array | None
    ) -> LayerCache:
        """Writes what x [B, T, D] adds to the cache `own` from slot `start`."""
        if own is None:
            return None
        if isinstance(own, RecurrentCache):
            return self.recurrent.extend(self.normalize(x), own, start)[1]
        _, k, v = self.queries_keys_values(x, turn)
        return update_cache(own, (k, v), start)
