"""What encoder-decoder transformers have in common: layers, the passes over them, the contract.

An architecture (`t5.py`, `bart.py`) says what its layers are made of, how tokens enter a stack,
what is added to scores, and how states become logits. Vaswani et al., "Attention Is All You Need"
(2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, LengthBias, attention, of_texts
from specjax.models.base import Cache, Params, PromptReading
from specjax.models.caches import KeysValues, remembered
from specjax.models.layers import (
    Tree,
    apply,
    initial,
    key_mask,
    masked_mean,
    merge_heads,
    rematerialised,
    split_heads,
)
from specjax.models.linen import LinenModel


class Attention(nn.Module):
    """Query, key, value and output projections; the rest is `attention`.

    A subclass sets up `q`, `k`, `v` and `o`, and says how many `heads` there are.
    """

    config: Any

    def queries(self, x: jax.Array) -> jax.Array:
        return split_heads(self.q(x), self.heads)

    def keys_values(self, x: jax.Array) -> KeysValues:
        return split_heads(self.k(x), self.heads), split_heads(self.v(x), self.heads)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, bias: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, bias)))


class Layer(nn.Module):
    """A sublayer is `x + f(norm(x))`, or in a post-norm layer `norm(x + f(x))`.

    A subclass sets up `self_norm`, `self_attention`, `ff_norm`, `ff` and `drop`; a decoder's
    `cross_norm` and `cross_attention` too.
    """

    config: Any

    @property
    def post_norm(self) -> bool:
        return False

    def before(self, norm: nn.Module, x: jax.Array) -> jax.Array:
        """What a sublayer reads of the residual stream x [B, T, D]."""
        return x if self.post_norm else norm(x)

    def after(
        self, norm: nn.Module, x: jax.Array, made: jax.Array, deterministic: bool
    ) -> jax.Array:
        """The residual stream behind a sublayer that `made` [B, T, D]."""
        x = x + self.drop(made, deterministic=deterministic)
        return norm(x) if self.post_norm else x

    def feed_forward(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """The residual stream behind the last sublayer."""
        h = self.ff(self.before(self.ff_norm, x), deterministic)
        return self.after(self.ff_norm, x, h, deterministic)


class EncoderLayer(Layer):
    """Self-attention in both directions, then the feed-forward network."""

    def __call__(self, x: jax.Array, bias: AnyBias, deterministic: bool) -> jax.Array:
        h = self.before(self.self_norm, x)
        h = self.self_attention(
            self.self_attention.queries(h), *self.self_attention.keys_values(h), bias
        )
        x = self.after(self.self_norm, x, h, deterministic)
        return self.feed_forward(x, deterministic)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the encoder's states, the feed-forward network."""

    def cross_keys_values(self, encoded: jax.Array) -> KeysValues:
        return self.cross_attention.keys_values(encoded)

    def remember(self, x: jax.Array, own: KeysValues, start: jax.Array) -> KeysValues:
        """The cache `own` with keys and values of x [B, T, D] from `start` on."""
        h = self.before(self.self_norm, x)
        return remembered(own, self.self_attention.keys_values(h), start)

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
        h = self.before(self.self_norm, x)
        made = self.self_attention.keys_values(h)
        k, v = made if own is None else remembered(own, made, start)
        h = self.self_attention(self.self_attention.queries(h), k, v, self_bias)
        x = self.after(self.self_norm, x, h, deterministic)
        h = self.cross_attention.queries(self.before(self.cross_norm, x))
        h = self.cross_attention(h, *cross, cross_bias)
        x = self.after(self.cross_norm, x, h, deterministic)
        return self.feed_forward(x, deterministic), (k, v)


class EncoderDecoderModule(nn.Module):
    """The passes over two stacks; `EncoderDecoder` wraps a module into the model contract.

    A subclass sets up the layers `encoder` and `decoder`, and `drop`, and has the methods that are
    not implemented here.
    """

    config: Any

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Final encoder states [B, S, D] of source [B, S]."""
        raise NotImplementedError

    def enter(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """The decoder's input states [B, T, D] of tokens [B, T] at `position` [B, T] or [1, T]."""
        raise NotImplementedError

    def target_bias(self, size: int) -> AnyBias:
        """Bias of the decoder's own attention over whole rows, causal mask included."""
        raise NotImplementedError

    def step_bias(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> AnyBias:
        """The same of `fed` tokens from slot `start` [B] on, over the slots of a cache's `data`."""
        raise NotImplementedError

    def head_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Float32 logits [..., V] of residual states [..., D]."""
        return self.output(self.normed(x), training)

    def normed(self, x: jax.Array) -> jax.Array:
        """Residual states behind the final norm, where there is one."""
        raise NotImplementedError

    def output(self, x: jax.Array, training: bool = False) -> jax.Array:
        """`head_logits` of normed states."""
        raise NotImplementedError

    def through_encoder(self, x: jax.Array, bias: AnyBias, deterministic: bool) -> jax.Array:
        """States [B, S, D] after the encoder's layers."""

        def one(layer: EncoderLayer, x: jax.Array, bias: AnyBias) -> jax.Array:
            return layer(x, bias, deterministic)

        for layer in self.encoder:
            x = rematerialised(one, self.config.remat)(layer, x, bias)
        return x

    def read(
        self, source: jax.Array, length: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """What cross-attention needs of source [B, S], its embedding [B, D] float32, its states."""
        return self.read_encoded(self.encode(source, length), length)

    def read_encoded(
        self, encoded: jax.Array, length: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """The same of the encoder's states [B, S, D]."""
        data = {
            "cross": [layer.cross_keys_values(encoded) for layer in self.decoder],
            "cross_bias": key_mask(length, encoded.shape[1]),
        }
        return data, masked_mean(encoded, length), encoded

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
        fed = tokens.shape[1]
        position = start[:, None] + jnp.arange(fed) if tree is None else tree[0][:, -fed:]
        x = self.enter(tokens, position) if resume is None else resume
        bias = self.step_bias(data, start, fed, tree)
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
        cross_bias = of_texts(LengthBias(source_length), size, encoded.shape[1])
        biases = self.target_bias(size), cross_bias

        def one(
            layer: DecoderLayer, x: jax.Array, encoded: jax.Array, *biases: AnyBias
        ) -> jax.Array:
            cross = layer.cross_keys_values(encoded)
            return layer(x, None, None, cross, *biases, deterministic)[0]

        x = self.enter(target, jnp.arange(size)[None])
        x, taken = self.drop(x, deterministic=deterministic), {}
        for number, layer in enumerate(self.decoder, start=1):
            x = rematerialised(one, self.config.remat)(layer, x, encoded, *biases)
            if number in exits:
                taken[number] = self.leave(x, deterministic)
        return tuple(taken[number] for number in exits)

    def leave(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """What training reads out of the states x [B, T, D] after a decoder layer."""
        return x

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


class EncoderDecoder(LinenModel):
    """The model contract (`models.base`) over an `EncoderDecoderModule`."""

    @property
    def start_token(self) -> int:
        return self.config.start_token

    @property
    def depth(self) -> int:
        return self.config.num_decoder_layers

    def init(self, key: jax.Array) -> Params:
        """Freshly initialised float32 parameters."""
        return initial(self.module, key, (1, 1), (1,), (1, 1))

    def taught(self, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        return batch["prompt"], batch["prompt_length"], batch["inputs"]

    def prepared(self, params: Params, capacity: int) -> dict[str, Any]:
        """What else a cache of so many decoder tokens holds for all calls."""
        return {}

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
        encoded: jax.Array | None = None,
    ) -> tuple[Cache, PromptReading]:
        method, heard = ("read", prompt) if encoded is None else ("read_encoded", encoded)
        read, embedding, encoded = apply(self.module, method, params, heard, prompt_length)
        rows, heads, _, width = read["cross"][0][0].shape
        empty = jnp.zeros((rows, heads, capacity, width), self.config.dtype)
        data = {**read, "own": [(empty, empty)] * self.depth, **self.prepared(params, capacity)}
        return Cache(data, jnp.zeros_like(prompt_length)), PromptReading(embedding, encoded)
