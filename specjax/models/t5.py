"""The T5 family (T5 v1.0 and v1.1, Flan-T5, mT5) with explicit caches.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(2020). Differences from a textbook transformer: RMS norms before each sublayer, no biases, scores
without a 1/sqrt(d) factor, and one table of relative position biases per stack, shared by its
layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.attention import (
    AnyBias,
    LengthBias,
    attention,
    is_whole,
    of_call,
    of_texts,
    of_tree,
)
from specjax.models.base import Cache, Params, PromptReading
from specjax.models.caches import KeysValues, remembered
from specjax.models.layers import (
    MASKED,
    Dense,
    FeedForward,
    RMSNorm,
    Tree,
    apply,
    initial,
    key_mask,
    masked_mean,
    merge_heads,
    rematerialised,
    split_heads,
    tied_logits,
)
from specjax.models.linen import LinenModel
from specjax.models.relative_bias import RelativeBias, RelativeBiasOf, tree_bias


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Shape of a T5 model, in the words of its Hugging Face `config.json`."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    activation: str = "gelu_new"
    gated: bool = True
    tied: bool = False  # the output layer is the embedding table
    scale_outputs: bool = False  # decoder output times d_model ** -0.5 before the output layer
    buckets: int = 32
    max_distance: int = 128
    eps: float = 1e-6
    dropout: float = 0.0
    family: str = "t5"  # Hugging Face's `model_type`
    start_token: int = 0
    eos: tuple[int, ...] = (1,)
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training computes layers again for the gradient: less memory


class Attention(nn.Module):
    """Query, key, value and output projections; the rest is `attention`."""

    config: T5Config

    def setup(self) -> None:
        c = self.config
        inner = c.num_heads * c.d_kv
        # T5 folds the 1/sqrt(d_kv) of the scores into the initial query weights.
        self.q = Dense(inner, c.dtype, 1.0 / c.d_kv)
        self.k = Dense(inner, c.dtype)
        self.v = Dense(inner, c.dtype)
        self.o = Dense(c.d_model, c.dtype)

    def queries(self, x: jax.Array) -> jax.Array:
        return split_heads(self.q(x), self.config.num_heads)

    def keys_values(self, x: jax.Array) -> KeysValues:
        heads = self.config.num_heads
        return split_heads(self.k(x), heads), split_heads(self.v(x), heads)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, bias: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, bias)))


class EncoderLayer(nn.Module):
    config: T5Config

    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)
        self.drop = nn.Dropout(c.dropout)

    def __call__(self, x: jax.Array, bias: AnyBias, deterministic: bool) -> jax.Array:
        h = self.self_norm(x)
        h = self.self_attention(
            self.self_attention.queries(h), *self.self_attention.keys_values(h), bias
        )
        x = x + self.drop(h, deterministic=deterministic)
        h = self.ff(self.ff_norm(x), deterministic)
        return x + self.drop(h, deterministic=deterministic)


class DecoderLayer(nn.Module):
    config: T5Config

    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.cross_norm, self.cross_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)
        self.drop = nn.Dropout(c.dropout)

    def cross_keys_values(self, encoded: jax.Array) -> KeysValues:
        return self.cross_attention.keys_values(encoded)

    def remember(self, x: jax.Array, own: KeysValues, start: jax.Array) -> KeysValues:
        """The cache `own` with keys and values of x [B, T, D] from `start` on."""
        return remembered(own, self.self_attention.keys_values(self.self_norm(x)), start)

    def __call__(
        self,
        x: jax.Array,
        own: KeysValues | None,
        start: jax.Array | None,
        cross: KeysValues,
        self_bias: AnyBias,
        cross_bias: AnyBias,
        deterministic: bool = True,
    ) -> tuple[jax.Array, KeysValues]:
        """One layer on x [B, T, D]; `own` is its key and value cache, None when training."""
        h = self.self_norm(x)
        made = self.self_attention.keys_values(h)
        k, v = made if own is None else remembered(own, made, start)
        h = self.self_attention(self.self_attention.queries(h), k, v, self_bias)
        x = x + self.drop(h, deterministic=deterministic)
        h = self.cross_attention.queries(self.cross_norm(x))
        h = self.cross_attention(h, *cross, cross_bias)
        x = x + self.drop(h, deterministic=deterministic)
        h = self.ff(self.ff_norm(x), deterministic)
        return x + self.drop(h, deterministic=deterministic), (k, v)


class T5Module(nn.Module):
    """Parameters and layers; `T5` wraps it into the model contract."""

    config: T5Config

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(1.0)
        self.embedding = self.param("embedding", init, (c.vocab_size, c.d_model), jnp.float32)
        self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
        self.decoder = [DecoderLayer(c) for _ in range(c.num_decoder_layers)]
        self.encoder_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, True)
        self.decoder_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, False)
        self.encoder_norm, self.decoder_norm = RMSNorm(c.eps), RMSNorm(c.eps)
        self.drop = nn.Dropout(c.dropout)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype)

    def embed(self, tokens: jax.Array) -> jax.Array:
        return self.embedding[tokens].astype(self.config.dtype)

    def source_bias(self, length: jax.Array, size: int) -> AnyBias:
        """Bias of the encoder's attention: relative positions, no keys beyond `length` [B]."""
        if not is_whole(size, size):
            table = self.encoder_bias(np.arange(-(size - 1), size + 1))
            return RelativeBiasOf(table, jnp.zeros(1, jnp.int32), length)
        position = np.arange(size)
        bias = self.encoder_bias(position[None, :] - position[:, None])
        return bias[None] + key_mask(length, size)

    def target_bias(self, size: int) -> AnyBias:
        """Bias of the decoder's own attention over whole rows, causal mask included."""
        if not is_whole(size, size):
            return RelativeBiasOf(self.reversed_bias(size), jnp.zeros(1, jnp.int32))
        position = np.arange(size)
        distance = position[None, :] - position[:, None]
        return (self.decoder_bias(distance) + np.where(distance > 0, MASKED, 0.0))[None]

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Final-normed encoder states [B, S, D] of source [B, S]."""
        bias = self.source_bias(length, source.shape[1])
        x = self.drop(self.embed(source), deterministic=deterministic)

        def one(layer: EncoderLayer, x: jax.Array, bias: AnyBias) -> jax.Array:
            return layer(x, bias, deterministic)

        for layer in self.encoder:
            x = rematerialised(one, self.config.remat)(layer, x, bias)
        return self.drop(self.encoder_norm(x), deterministic=deterministic)

    def head_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Float32 logits [..., V] of residual states [..., D]."""
        c = self.config
        x = self.decoder_norm(x)
        if c.scale_outputs:
            x = x * c.d_model**-0.5
        if c.tied:
            return tied_logits(x, self.embedding.astype(c.dtype), training)
        return self.head(x).astype(jnp.float32)

    def read(
        self, source: jax.Array, length: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """What cross-attention needs of source [B, S], its embedding [B, D] float32, its states."""
        encoded = self.encode(source, length)
        data = {
            "cross": [layer.cross_keys_values(encoded) for layer in self.decoder],
            "cross_bias": key_mask(length, source.shape[1]),
        }
        return data, masked_mean(encoded, length), encoded

    def reversed_bias(self, capacity: int) -> jax.Array:
        """Self-attention bias and causal mask by position, [H, 2 * capacity] (see `bias_rows`)."""
        distance = np.arange(-(capacity - 1), capacity + 1)
        return self.decoder_bias(distance) + np.where(distance > 0, MASKED, 0.0)

    def decode_step(
        self,
        tokens: jax.Array,
        data: dict[str, Any],
        start: jax.Array,
        at: jax.Array | None,
        resume: jax.Array | None,
        tree: Tree | None,
        layers: tuple[int, int],
        features: tuple[int, ...],
    ) -> tuple[jax.Array, jax.Array, list[KeysValues], tuple[jax.Array, ...]]:
        """Logits, states, the own caches with those of `layers` (from, to) extended, and features.

        Features are the states after the decoder layers (1-based) of that name.
        """
        x = self.embed(tokens) if resume is None else resume
        if tree is None:
            bias, slots = RelativeBiasOf(data["bias"], start), data["bias"].shape[1] // 2
            bias = of_call(bias, start, tokens.shape[1], slots)
        else:
            bias = of_tree(tree_bias(data["bias"], tree, start), start)
        own, taken = list(data["own"]), {}
        for i in range(*layers):
            cross = data["cross"][i]
            x, own[i] = self.decoder[i](x, own[i], start, cross, bias, data["cross_bias"])
            taken[i + 1] = x
        wanted = x if at is None else jnp.take_along_axis(x, at[..., None], axis=1, mode="clip")
        return self.head_logits(wanted), x, own, tuple(taken[number] for number in features)

    def propagate(
        self, x: jax.Array, own: list[KeysValues], start: jax.Array, layers: tuple[int, int]
    ) -> list[KeysValues]:
        """The own caches, with those of `layers` (from, to) holding what x [B, T, D] gives."""
        own = list(own)
        for i in range(*layers):
            own[i] = self.decoder[i].remember(x, own[i], start)
        return own

    def states(
        self,
        source: jax.Array,
        source_length: jax.Array,
        target: jax.Array,
        deterministic: bool,
        exits: tuple[int, ...],
    ) -> tuple[jax.Array, ...]:
        """Teacher-forced states [B, T, D] after each decoder layer of `exits`, without a cache."""
        encoded = self.encode(source, source_length, deterministic)
        size = target.shape[1]
        cross_bias = of_texts(LengthBias(source_length), size, source.shape[1])
        biases = self.target_bias(size), cross_bias

        def one(
            layer: DecoderLayer, x: jax.Array, encoded: jax.Array, *biases: AnyBias
        ) -> jax.Array:
            cross = layer.cross_keys_values(encoded)
            return layer(x, None, None, cross, *biases, deterministic)[0]

        x = self.drop(self.embed(target), deterministic=deterministic)
        taken = {}
        for number, layer in enumerate(self.decoder, start=1):
            x = rematerialised(one, self.config.remat)(layer, x, encoded, *biases)
            if number in exits:
                taken[number] = self.drop(x, deterministic=deterministic)
        return tuple(taken[number] for number in exits)

    def teach(
        self,
        source: jax.Array,
        source_length: jax.Array,
        target: jax.Array,
        deterministic: bool,
        exits: tuple[int, ...],
    ) -> tuple[jax.Array, ...]:
        """Logits [B, T, V] of `states`."""
        states = self.states(source, source_length, target, deterministic, exits)
        return tuple(self.head_logits(x, True) for x in states)

    def __call__(self, source: jax.Array, source_length: jax.Array, target: jax.Array) -> jax.Array:
        """Teacher-forced logits [B, T, V] for decoder inputs target [B, T]."""
        last = (self.config.num_decoder_layers,)
        return self.teach(source, source_length, target, True, last)[0]


@dataclasses.dataclass(frozen=True)
class T5(LinenModel):
    """A T5-family model under the contract of `models.base`."""

    config: T5Config

    @property
    def module(self) -> T5Module:
        return T5Module(self.config)

    @property
    def start_token(self) -> int:
        return self.config.start_token

    @property
    def max_positions(self) -> None:
        return None

    def init(self, key: jax.Array) -> Params:
        """Freshly initialised float32 parameters."""
        return initial(self.module, key, (1, 1), (1,), (1, 1))

    @property
    def depth(self) -> int:
        return self.config.num_decoder_layers

    def taught(self, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        return batch["prompt"], batch["prompt_length"], batch["inputs"]

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        c = self.config
        variables = {"params": params}
        empty = jnp.zeros((prompt.shape[0], c.num_heads, capacity, c.d_kv), c.dtype)
        read, embedding, encoded = apply(self.module, "read", params, prompt, prompt_length)
        data = {
            **read,
            "own": [(empty, empty)] * c.num_decoder_layers,
            "bias": self.module.apply(variables, capacity, method="reversed_bias"),
        }
        return Cache(data, jnp.zeros_like(prompt_length)), PromptReading(embedding, encoded)
