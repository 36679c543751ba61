"""Configuration and layers of decoder-only transformers (models/causal.py)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, attention
from specjax.models.caches import read_on, update_cache
from specjax.models.experts import Experts, Mixture
from specjax.models.latent_attention import Latent, LatentAttention
from specjax.models.layer_inputs import LayerInputGate, LayerInputs
from specjax.models.layers import Dense, FeedForward, merge_heads, split_heads
from specjax.models.norms import LayerNorm, RMSNorm, normalize_mean_square
from specjax.models.positions import Rope, Temperature, Turn, rotate
from specjax.models.recurrent_caches import Entries, LayerCache, LayerKeysValues, RecurrentCache
from specjax.models.recurrent_layers import Recurrence


class Heads(NamedTuple):
    """Key and value heads of one layer, and the width of all its heads."""

    kv_heads: int
    width: int
    values_are_keys: bool = False  # as they are before their norm and rotation


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
    ropes: tuple[
        Rope | None, ...
    ] = ()  # of each layer, None: not rotated; empty: `rope` in all layers
    heads: tuple[Heads, ...] = ()  # of each layer; empty: alike in all layers
    values_are_keys: bool = False  # values have no projection of their own (Gemma 4)
    shared_caches: tuple[
        int, ...
    ] = ()  # of each of the last layers: the layer whose cache it reads
    reads_cache: bool = False  # keys and values are those of an earlier layer
    d_ffs: tuple[int, ...] = ()  # of each layer; empty: `d_ff` in all layers
    layer_inputs: LayerInputs | None = None  # embeddings that each layer reads (Gemma 3n)
    position_offset: int = 0  # unused rows before the first learned position
    mixtures: tuple[Mixture | None, ...] = ()  # experts of each layer; None, or empty: none
    recurrences: tuple[Recurrence | None, ...] = ()  # of each layer; None, or empty: attention
    activation: str = "silu"
    gated: bool = True
    rms_norm: bool = True  # False: layer norm
    norm_scale: bool = True  # layer norms have a scale
    norm_bias: bool = True  # layer norms have a bias
    unit_offset: bool = False  # root-mean-square norms store their scale minus 1 (Gemma)
    pre_norm: bool = True  # norm of a sublayer's input
    post_norm: bool = False  # norm of its output, before the residual sum
    residual_norm: bool = False  # norm of the residual sum (OPT-350m)
    final_norm: bool = True  # norm of the states after the last layer
    qkv_bias: bool = False
    out_bias: bool = False
    ff_bias: bool = False
    head_bias: bool = False  # of the output layer
    qkv_clip: float = 0.0  # queries, keys and values are cut to at most this size; 0: off
    qk_norm: bool = False  # norm of each query and key head
    head_norms: bool = False  # layer norm of them, each head with its own scale (Command R)
    wide_qk_norm: bool = False  # norm of all heads as one vector (OLMo 2)
    value_norm: bool = False  # root-mean-square norm of value heads, without a scale (Gemma 4)
    gated_attention: bool = False  # a sigmoid gates the heads' outputs (Qwen3-Next)
    query_scale: float | None = None  # None: d_head ** -0.5
    query_scales: tuple[float, ...] = ()  # of each layer; empty: `query_scale` in all layers
    temperature: Temperature | None = None  # of attention by position; None: the same at all
    attention_cap: float = 0.0  # soft cap of scores; 0: off
    latent: Latent | None = None  # latent attention; `d_head` is then the width of the only key
    sinks: bool = False  # each head has a learned logit in its softmax's denominator (gpt-oss)
    logit_cap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # factor of what each sublayer adds (Granite)
    layer_scale: bool = False  # a stored factor of each layer's output (Gemma 4)
    projected_width: int | None = None  # width of embeddings; None: d_model, without projections
    parallel: bool = False  # attention and feed-forward read the same states (GPT-J, GPT-NeoX)
    shared_norm: bool = False  # by one norm (Phi, Command R)
    windows: tuple[int, ...] = ()  # visible keys per layer, 0: all; empty: all in every layer
    tied: bool = False
    eps: float = 1e-6
    dropout: float = 0.0
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training recomputes layers for the gradient, to save memory

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_kv_heads}; it must divide the"
                f" {self.num_heads} attention heads"
            )

    def get_layer(self, layer: int) -> CausalConfig:
        """The shape of one layer, whose heads and feed-forward may be its own."""
        if not (self.heads or self.d_ffs or self.shared_caches):
            return self
        kv_heads, width, values_are_keys = self.layer_heads[layer]
        own = {"num_kv_heads": kv_heads, "d_head": width, "values_are_keys": values_are_keys}
        own |= {"heads": (), "d_ffs": (), "d_ff": self.d_ffs[layer] if self.d_ffs else self.d_ff}
        own |= {"shared_caches": (), "reads_cache": self.reads_cache or layer >= self.cached_layers}
        return dataclasses.replace(self, **own)

    @property
    def cached_layers(self) -> int:
        """Layers with a cache of their own; they come first."""
        return self.num_layers - len(self.shared_caches)

    @property
    def cache_layers(self) -> tuple[int, ...]:
        """The layer whose cache each layer reads."""
        return (*range(self.cached_layers), *self.shared_caches)

    @property
    def layer_heads(self) -> tuple[Heads, ...]:
        one = Heads(self.num_kv_heads, self.d_head, self.values_are_keys)
        return self.heads or (one,) * self.num_layers

    @property
    def cache_widths(self) -> tuple[int, int]:
        """Widths of a cached key and value of a head."""
        return self.d_head, 0 if self.latent else self.d_head

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

    @property
    def layer_recurrences(self) -> tuple[Recurrence | None, ...]:
        return self.recurrences or (None,) * self.num_layers

    @property
    def layer_reaches(self) -> tuple[int, ...]:
        """Slots that each layer's tokens read besides a state, 0: all."""
        both = zip(self.layer_windows, self.layer_recurrences, strict=True)
        return tuple(kind.reach if kind else window for window, kind in both)


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
        return rotate(x, angles, self.rope.attention, self.rope.interleaved)

    def _read_values(self, x: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes values, head-major; `keys` are those before their norm and rotation."""
        c = self.config
        v = split_heads(keys if c.values_are_keys else self._clip(self.v(x)), c.num_kv_heads)
        return normalize_mean_square(v, c.eps).astype(v.dtype) if c.value_norm else v

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
    config: CausalConfig
    rope: Rope | None
    mixture: Mixture | None
    query_scale: float
    recurrence: Recurrence | None = None  # in place of attention

    def setup(self) -> None:
        c = self.config
        if c.pre_norm or c.residual_norm:
            self.attention_norm = make_norm(c)
            self.ff_norm = self.attention_norm if c.shared_norm else make_norm(c)
        if c.post_norm:
            self.attention_post_norm, self.ff_post_norm = make_norm(c), make_norm(c)
        if self.recurrence is None:
            self.attention = make_attention(c, self.rope, self.query_scale)
        else:
            self.recurrent = self.recurrence.make_layer(c.d_model, c.activation, c.eps, c.dtype)
        if self.mixture is None:
            self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout, c.ff_bias)
        else:
            self.ff = Experts(self.mixture, c.activation, c.dtype)
        self.drop = nn.Dropout(c.dropout)
        if c.layer_inputs:
            self.input_gate = LayerInputGate(c.activation, c.eps, c.dtype)
        if c.layer_scale:
            self.scale = self.param("scale", nn.initializers.ones, (1,), jnp.float32)

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
        attended = self.attention_norm(attended) if self.config.residual_norm else attended
        h = x if self.config.parallel else attended
        h = self.ff(self.ff_norm(h) if self.config.pre_norm else h, deterministic)
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
        if isinstance(own, RecurrentCache):
            return self.recurrent.extend(self.normalize(x), own, start)[1]
        _, k, v = self.queries_keys_values(x, turn)
        return update_cache(own, (k, v), start)
