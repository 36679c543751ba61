"""What encoder-decoder transformers have in common: layers, the passes over them, the contract.

An architecture (`t5.py`, `bart.py`) says what its layers are made of, how tokens enter a stack,
what is added to scores, and how states become logits. Vaswani et al., "Attention Is All You Need"
(2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, LengthBias, Source, attention, of_texts
from specjax.models.base import Cache, Params, PromptReading
from specjax.models.caches import KeysValues, empty_cache, update_cache
from specjax.models.info import ModelInfo
from specjax.models.layers import (
    Tree,
    apply,
    initial,
    key_mask,
    masked_mean,
    merge_heads,
    rematerialize,
    split_heads,
)
from specjax.models.linen import LinenModel
from specjax.models.positions import rotate


class Attention(nn.Module):
    """Query, key, value and output projections; the rest is `attention`.

    A subclass sets up `q`, `k`, `v` and `o`, and says how many `heads` there are. Queries and keys
    are rotated by `angles` [B, T, d / 2] where there are some.
    """

    config: Any

    @property
    def kv_heads(self) -> int:
        return self.heads

    def queries(self, x: jax.Array, angles: jax.Array | None = None) -> jax.Array:
        return self.turned(split_heads(self.q(x), self.heads), angles)

    def keys_values(self, x: jax.Array, angles: jax.Array | None = None) -> KeysValues:
        keys = self.turned(split_heads(self.k(x), self.kv_heads), angles)
        return keys, split_heads(self.v(x), self.kv_heads)

    def turned(self, x: jax.Array, angles: jax.Array | None) -> jax.Array:
        return x if angles is None else rotate(x, angles)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, bias: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, bias)))


Norm = TypeVar("Norm", bound=nn.Module)
"""What a sublayer has for its norm."""


class Layer(nn.Module, Generic[Norm]):
    """A sublayer is `x + f(norm(x))`, or in a post-norm layer `norm(x + f(x))`.

    A subclass sets up `self_norm`, `self_attention`, `ff_norm`, `ff` and `drop`; a decoder's
    `cross_norm` and `cross_attention` too.
    """

    config: Any

    @property
    def post_norm(self) -> bool:
        return False

    def before(self, norm: Norm, x: jax.Array) -> jax.Array:
        """What a sublayer reads of the residual stream x [B, T, D]."""
        return x if self.post_norm else norm(x)

    def after(self, norm: Norm, x: jax.Array, made: jax.Array, deterministic: bool) -> jax.Array:
        """The residual stream behind a sublayer that `made` [B, T, D]."""
        x = x + self.drop(made, deterministic=deterministic)
        return norm(x) if self.post_norm else x

    def feed_forward(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """The residual stream behind the last sublayer."""
        h = self.ff(self.before(self.ff_norm, x), deterministic)
        return self.after(self.ff_norm, x, h, deterministic)


class EncoderLayer(Layer[Norm]):
    """Self-attention in both directions, then the feed-forward network."""

    def __call__(
        self, x: jax.Array, angles: jax.Array | None, bias: AnyBias, deterministic: bool
    ) -> jax.Array:
        h = self.before(self.self_norm, x)
        q = self.self_attention.queries(h, angles)
        h = self.self_attention(q, *self.self_attention.keys_values(h, angles), bias)
        x = self.after(self.self_norm, x, h, deterministic)
        return self.feed_forward(x, deterministic)


class DecoderLayer(Layer[Norm]):
    """Causal self-attention, attention to the encoder's states, the feed-forward network."""

    def cross_keys_values(self, encoded: jax.Array) -> KeysValues:
        return self.cross_attention.keys_values(encoded)

    def remember(
        self, x: jax.Array, own: KeysValues, start: jax.Array, angles: jax.Array | None
    ) -> KeysValues:
        """The cache `own` with keys and values of x [B, T, D] from `start` on."""
        h = self.before(self.self_norm, x)
        return update_cache(own, self.self_attention.keys_values(h, angles), start)

    def __call__(
        self,
        x: jax.Array,
        own: KeysValues | None,
        start: jax.Array | None,
        angles: jax.Array | None,
        cross: KeysValues,
        self_bias: AnyBias,
        cross_bias: AnyBias,
        deterministic: bool = True,
    ) -> tuple[jax.Array, KeysValues]:
        """One layer on x [B, T, D]; `own` is its key and value cache, None when training."""
        h = self.before(self.self_norm, x)
        made: KeysValues = self.self_attention.keys_values(h, angles)
        kept = made if own is None or start is None else update_cache(own, made, start)
        queries = self.self_attention.queries(h, angles)
        own_keys, encoded = (*kept, self_bias), (*cross, cross_bias)
        x = self.attended(x, queries, own_keys, encoded, deterministic)
        return self.feed_forward(x, deterministic), kept

    def attended(
        self, x: jax.Array, queries: jax.Array, own: Source, encoded: Source, deterministic: bool
    ) -> jax.Array:
        """x [B, T, D] with attention to its own tokens, then to the encoder's states."""
        h = self.self_attention(queries, *own)
        x = self.after(self.self_norm, x, h, deterministic)
        h = self.cross_attention.queries(self.before(self.cross_norm, x))
        h = self.cross_attention(h, *encoded)
        return self.after(self.cross_norm, x, h, deterministic)


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

    def target_biases(self, size: int) -> Sequence[AnyBias]:
        """`target_bias` of each decoder layer, for architectures whose layers differ."""
        return [self.target_bias(size)] * len(self.decoder)

    def step_biases(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> Sequence[AnyBias]:
        """`step_bias` of each decoder layer."""
        return [self.step_bias(data, start, fed, tree)] * len(self.decoder)

    def rotations(self, position: jax.Array) -> Sequence[jax.Array | None]:
        """Angles [B, T, d / 2] of `position` [B, T] or [1, T] in each decoder layer, if any."""
        return [None] * len(self.decoder)

    def head_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Float32 logits [..., V] of residual states [..., D]."""
        return self.output(self.normed(x), training)

    def normed(self, x: jax.Array) -> jax.Array:
        """Residual states behind the final norm, where there is one."""
        raise NotImplementedError

    def output(self, x: jax.Array, training: bool = False) -> jax.Array:
        """`head_logits` of normed states."""
        raise NotImplementedError

    def through_encoder(
        self,
        x: jax.Array,
        biases: Sequence[AnyBias],
        deterministic: bool,
        angles: Sequence[jax.Array | None] | None = None,
    ) -> jax.Array:
        """States [B, S, D] after the encoder's layers, each with its bias and angles."""

        def one(
            layer: EncoderLayer, x: jax.Array, angles: jax.Array | None, bias: AnyBias
        ) -> jax.Array:
            return layer(x, angles, bias, deterministic)

        places = zip(angles or [None] * len(biases), biases, strict=True)
        for layer, place in zip(self.encoder, places, strict=True):
            x = rematerialize(one, self.config.remat)(layer, x, *place)
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
        angles, biases = self.rotations(position), self.step_biases(data, start, fed, tree)
        own, taken = list(data["own"]), {}
        for i in range(*layers):
            seen = data["cross"][i], biases[i], data["cross_bias"]
            x, own[i] = self.decoder[i](x, own[i], start, angles[i], *seen)
            taken[i + 1] = x
        wanted = x if at is None else jnp.take_along_axis(x, at[..., None], axis=1, mode="clip")
        return self.head_logits(wanted), x, own, tuple(taken[number] for number in features)

    def propagate(
        self, x: jax.Array, own: list[KeysValues], start: jax.Array, layers: tuple[int, int]
    ) -> list[KeysValues]:
        """The own caches, with those of `layers` (from, to) holding what x [B, T, D] gives."""
        angles = self.rotations(start[:, None] + jnp.arange(x.shape[1]))
        own = list(own)
        for i in range(*layers):
            own[i] = self.decoder[i].remember(x, own[i], start, angles[i])
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
        position = jnp.arange(size)[None]
        angles, biases = self.rotations(position), self.target_biases(size)

        def one(
            layer: DecoderLayer,
            x: jax.Array,
            encoded: jax.Array,
            angles: jax.Array | None,
            bias: AnyBias,
            cross_bias: AnyBias,
        ) -> jax.Array:
            cross = layer.cross_keys_values(encoded)
            return layer(x, None, None, angles, cross, bias, cross_bias, deterministic)[0]

        x = self.drop(self.enter(target, position), deterministic=deterministic)
        taken = {}
        for i, layer in enumerate(self.decoder):
            place = angles[i], biases[i], cross_bias
            x = rematerialize(one, self.config.remat)(layer, x, encoded, *place)
            if i + 1 in exits:
                taken[i + 1] = self.leave(x, deterministic)
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
    def info(self) -> ModelInfo:
        c = self.config
        shape = c.vocab_size, c.num_decoder_layers
        return ModelInfo(*shape, c.eos, c.pad, start_token=c.start_token)

    def init(self, key: jax.Array) -> Params:
        """Freshly initialised float32 parameters."""
        return initial(self.module, key, (1, 1), (1,), (1, 1))

    def taught(self, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        return batch["prompt"], batch["prompt_length"], batch["inputs"]

    @property
    def decoder_shape(self) -> Any:
        """Shape of the decoder's layers: `d_ff`, `num_heads`, `activation`, `gated`."""
        return self.config

    @property
    def cross_heads(self) -> tuple[int, int]:
        """Heads, and the width of each, of the encoder's keys and values in a cache."""
        return self.config.num_heads, self.config.d_kv

    @property
    def windows(self) -> tuple[int, ...]:
        """Keys that each decoder layer's own attention sees, 0 for all."""
        return (0,) * self.info.depth

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
        like = jax.ShapeDtypeStruct((rows, heads, capacity, width), self.config.dtype)
        own = [empty_cache(like, window, ahead) for window in self.windows]
        data = {**read, "own": own, **self.prepared(params, capacity)}
        return Cache(data, jnp.zeros_like(prompt_length)), PromptReading(embedding, encoded)
