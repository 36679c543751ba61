"""Shared parts of encoder-decoder transformers: layers, modules and the model interface.

An architecture (`t5.py`, `bart.py`) defines its layers, input embeddings, attention biases and
output layer. Vaswani et al., "Attention Is All You Need"
(2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import AnyBias, LengthBias, Source, attention, make_text_bias
from specjax.models.base import Cache, Params, PromptReading
from specjax.models.caches import KeysValues, make_empty_cache, update_cache
from specjax.models.info import ModelInfo, has_one_size
from specjax.models.layers import (
    Tree,
    apply,
    compute_masked_mean,
    init_params,
    make_key_mask,
    merge_heads,
    pad_positions,
    rematerialize,
    split_heads,
)
from specjax.models.linen import LinenModel
from specjax.models.positions import rotate


class Attention(nn.Module):
    """Query, key, value and output projections around `attention`.

    A subclass sets up `q`, `k`, `v` and `o`, and has the number of `heads`. Queries and keys are
    rotated by `angles` [B, T, d / 2], if given.
    """

    config: Any

    @property
    def kv_heads(self) -> int:
        return self.heads

    def queries(self, x: jax.Array, angles: jax.Array | None = None) -> jax.Array:
        return self.apply_rotation(split_heads(self.q(x), self.heads), angles)

    def keys_values(self, x: jax.Array, angles: jax.Array | None = None) -> KeysValues:
        keys = self.apply_rotation(split_heads(self.k(x), self.kv_heads), angles)
        return keys, split_heads(self.v(x), self.kv_heads)

    def apply_rotation(self, x: jax.Array, angles: jax.Array | None) -> jax.Array:
        return x if angles is None else rotate(x, angles)

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, bias: AnyBias) -> jax.Array:
        return self.o(merge_heads(attention(q, k, v, bias)))


Norm = TypeVar("Norm", bound=nn.Module)
"""The norm, or norms, of a sublayer."""


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
        """Returns a sublayer's input from the residual stream x [B, T, D]."""
        return x if self.post_norm else norm(x)

    def after(self, norm: Norm, x: jax.Array, made: jax.Array, deterministic: bool) -> jax.Array:
        """Returns the residual stream after a sublayer with output `made` [B, T, D]."""
        x = x + self.drop(made, deterministic=deterministic)
        return norm(x) if self.post_norm else x

    def feed_forward(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """Applies the last sublayer to the residual stream."""
        h = self.ff(self.before(self.ff_norm, x), deterministic)
        return self.after(self.ff_norm, x, h, deterministic)


class EncoderLayer(Layer[Norm]):
    """Self-attention in both directions, then the feed-forward network."""

    def __call__(
        self, x: jax.Array, angles: jax.Array | None, bias: Any, deterministic: bool
    ) -> jax.Array:
        h = self.attend(self.before(self.self_norm, x), angles, bias)
        x = self.after(self.self_norm, x, h, deterministic)
        return self.feed_forward(x, deterministic)

    def attend(self, h: jax.Array, angles: jax.Array | None, bias: Any) -> jax.Array:
        """Applies self-attention to its input h [B, S, D]."""
        q = self.self_attention.queries(h, angles)
        return self.self_attention(q, *self.self_attention.keys_values(h, angles), bias)


class DecoderLayer(Layer[Norm]):
    """Causal self-attention, attention to the encoder's states, the feed-forward network."""

    def compute_cross_keys_values(self, encoded: jax.Array) -> KeysValues:
        return self.cross_attention.keys_values(encoded)

    def write_cache(
        self, x: jax.Array, own: KeysValues, start: jax.Array, angles: jax.Array | None
    ) -> KeysValues:
        """Writes keys and values of x [B, T, D] to the cache `own` from slot `start`."""
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
        """Runs the layer on x [B, T, D]; `own` is its KV cache, None in training."""
        h = self.before(self.self_norm, x)
        made: KeysValues = self.self_attention.keys_values(h, angles)
        kept = made if own is None or start is None else update_cache(own, made, start)
        queries = self.self_attention.queries(h, angles)
        own_keys, encoded = (*kept, self_bias), (*cross, cross_bias)
        x = self.attend(x, queries, own_keys, encoded, deterministic)
        return self.feed_forward(x, deterministic), kept

    def attend(
        self, x: jax.Array, queries: jax.Array, own: Source, encoded: Source, deterministic: bool
    ) -> jax.Array:
        """Applies self-attention, then cross-attention, to x [B, T, D]."""
        h = self.self_attention(queries, *own)
        x = self.after(self.self_norm, x, h, deterministic)
        h = self.cross_attention.queries(self.before(self.cross_norm, x))
        h = self.cross_attention(h, *encoded)
        return self.after(self.cross_norm, x, h, deterministic)


class EncoderDecoderModule(nn.Module):
    """An encoder and a decoder stack; `EncoderDecoder` implements the model interface.

    A subclass sets up the layers `encoder` and `decoder`, and `drop`, and implements the abstract
    methods.
    """

    config: Any

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Computes final encoder states [B, S, D] of prompts [B, P] of `length` [B]."""
        raise NotImplementedError

    def count_states(self, length: jax.Array) -> jax.Array:
        """Returns the number of encoder states [B] of prompts of `length` [B]."""
        return length

    def enter(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """Embeds decoder tokens [B, T] at `position` [B, T] or [1, T] into states [B, T, D]."""
        raise NotImplementedError

    def make_target_bias(self, size: int) -> AnyBias:
        """Builds the decoder's self-attention bias over whole rows, causal mask included."""
        raise NotImplementedError

    def make_step_bias(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> AnyBias:
        """Builds the bias of `fed` tokens at slots from `start` [B], over a cache's `data`."""
        raise NotImplementedError

    def make_target_biases(self, size: int) -> Sequence[AnyBias]:
        """Builds `make_target_bias` of each decoder layer."""
        return [self.make_target_bias(size)] * len(self.decoder)

    def make_step_biases(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> Sequence[AnyBias]:
        """Builds `make_step_bias` of each decoder layer."""
        return [self.make_step_bias(data, start, fed, tree)] * len(self.decoder)

    def compute_decoder_angles(self, position: jax.Array) -> Sequence[jax.Array | None]:
        """Computes angles [B, T, d / 2] of `position` [B, T] or [1, T] per decoder layer."""
        return [None] * len(self.decoder)

    def compute_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Computes float32 logits [..., V] of residual states [..., D]."""
        return self.apply_lm_head(self.apply_final_norm(x), training)

    def apply_final_norm(self, x: jax.Array) -> jax.Array:
        """Applies the final norm, if any, to residual states [..., D]."""
        raise NotImplementedError

    def apply_lm_head(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Computes float32 logits [..., V] of normed states [..., D]."""
        raise NotImplementedError

    def run_encoder(
        self,
        x: jax.Array,
        biases: Sequence[AnyBias],
        deterministic: bool,
        angles: Sequence[jax.Array | None] | None = None,
    ) -> jax.Array:
        """Runs the encoder's layers with their biases and angles; returns states [B, S, D]."""

        def one(
            layer: EncoderLayer, x: jax.Array, angles: jax.Array | None, bias: AnyBias
        ) -> jax.Array:
            return layer(x, angles, bias, deterministic)

        places = zip(angles or [None] * len(biases), biases, strict=True)
        for layer, place in zip(self.encoder, places, strict=True):
            x = rematerialize(one, self.config.remat)(layer, x, *place)
        return x

    def read_encoded(
        self, encoded: jax.Array, length: jax.Array
    ) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        """Returns cross-attention data, embeddings [B, D] and states from states [B, S, D]."""
        data = {
            "cross": [layer.compute_cross_keys_values(encoded) for layer in self.decoder],
            "cross_bias": make_key_mask(length, encoded.shape[1]),
        }
        return data, compute_masked_mean(encoded, length), encoded

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
        """Runs `layers` (from, to) on tokens; returns logits, states, caches and features.

        Features are the states after the decoder layers `features` (1-based).
        """
        fed = tokens.shape[1]
        position = start[:, None] + jnp.arange(fed) if tree is None else tree[0][:, -fed:]
        x = self.enter(tokens, position) if resume is None else resume
        angles, biases = (
            self.compute_decoder_angles(position),
            self.make_step_biases(data, start, fed, tree),
        )
        own, taken = list(data["own"]), {}
        for i in range(*layers):
            context = data["cross"][i], biases[i], data["cross_bias"]
            x, own[i] = self.decoder[i](x, own[i], start, angles[i], *context)
            taken[i + 1] = x
        wanted = x if at is None else jnp.take_along_axis(x, at[..., None], axis=1, mode="clip")
        return self.compute_logits(wanted), x, own, tuple(taken[number] for number in features)

    def propagate(
        self, x: jax.Array, own: list[KeysValues], start: jax.Array, layers: tuple[int, int]
    ) -> list[KeysValues]:
        """Writes keys and values of states x [B, T, D] to the caches of `layers` (from, to)."""
        angles = self.compute_decoder_angles(start[:, None] + jnp.arange(x.shape[1]))
        own = list(own)
        for i in range(*layers):
            own[i] = self.decoder[i].write_cache(x, own[i], start, angles[i])
        return own

    def states(
        self,
        source: jax.Array,
        source_length: jax.Array,
        target: jax.Array,
        deterministic: bool,
        exits: tuple[int, ...],
    ) -> tuple[jax.Array, ...]:
        """Computes teacher-forced states [B, T, D] after each decoder layer of `exits`."""
        encoded = self.encode(source, source_length, deterministic)
        size, length = target.shape[1], self.count_states(source_length)
        cross_bias = make_text_bias(LengthBias(length), size, encoded.shape[1])
        position = jnp.arange(size)[None]
        angles, biases = self.compute_decoder_angles(position), self.make_target_biases(size)

        def one(
            layer: DecoderLayer,
            x: jax.Array,
            encoded: jax.Array,
            angles: jax.Array | None,
            bias: AnyBias,
            cross_bias: AnyBias,
        ) -> jax.Array:
            cross = layer.compute_cross_keys_values(encoded)
            return layer(x, None, None, angles, cross, bias, cross_bias, deterministic)[0]

        x = self.drop(self.enter(target, position), deterministic=deterministic)
        taken = {}
        for i, layer in enumerate(self.decoder):
            place = angles[i], biases[i], cross_bias
            x = rematerialize(one, self.config.remat)(layer, x, encoded, *place)
            if i + 1 in exits:
                taken[i + 1] = self.select_output(x, deterministic)
        return tuple(taken[number] for number in exits)

    def select_output(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """Returns the states for training from the states x [B, T, D] after a decoder layer."""
        return x

    def teach(
        self,
        source: jax.Array,
        source_length: jax.Array,
        target: jax.Array,
        deterministic: bool,
        exits: tuple[int, ...],
    ) -> tuple[jax.Array, ...]:
        """Computes teacher-forced logits [B, T, V] after each decoder layer of `exits`."""
        states = self.states(source, source_length, target, deterministic, exits)
        return tuple(self.compute_logits(x, True) for x in states)

    def __call__(self, source: jax.Array, source_length: jax.Array, target: jax.Array) -> jax.Array:
        """Computes teacher-forced logits [B, T, V] of decoder inputs `target` [B, T]."""
        last = (self.config.num_decoder_layers,)
        return self.teach(source, source_length, target, True, last)[0]


class EncoderDecoder(LinenModel):
    """Implements the model interface (`models.base`) by an `EncoderDecoderModule`."""

    @property
    def info(self) -> ModelInfo:
        c = self.config
        shape = c.vocab_size, c.num_decoder_layers
        return ModelInfo(*shape, c.eos, c.pad, start_token=c.start_token)

    def init(self, key: jax.Array) -> Params:
        """Initializes float32 parameters."""
        return init_params(self.module, key, (1, 1), (1,), (1, 1))

    def select_inputs(self, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        return batch["prompt"], batch["prompt_length"], batch["inputs"]

    @property
    def decoder_shape(self) -> Any:
        """Shape of the decoder's layers: `d_ff`, `num_heads`, `activation`, `gated`."""
        return self.config

    @property
    def cross_heads(self) -> tuple[int, int]:
        """Number and width of the cross-attention's key-value heads."""
        return self.config.num_heads, self.config.d_kv

    @property
    def windows(self) -> tuple[int, ...]:
        """Sliding window of each decoder layer's self-attention, 0 for all keys."""
        return (0,) * self.info.depth

    def prepare(self, params: Params, capacity: int) -> dict[str, Any]:
        """Computes further cache entries for a capacity in decoder tokens."""
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
        longest: int | None = None,
        encoded: jax.Array | None = None,
    ) -> tuple[Cache, PromptReading]:
        if has_one_size(self.info.input):
            longest = None
        module, states = self.module, encoded
        if states is None:
            states = apply(module, "encode", params, prompt[:, :longest], prompt_length)
        if longest is not None:
            states = pad_positions(states, module.count_states(prompt.shape[1]))
        given = params, states, module.count_states(prompt_length)
        read, embedding, encoded = apply(self.module, "read_encoded", *given)
        rows, heads, _, width = read["cross"][0][0].shape
        like = jax.ShapeDtypeStruct((rows, heads, capacity, width), self.config.dtype)
        own = [make_empty_cache(like, window, ahead) for window in self.windows]
        data = {**read, "own": own, **self.prepare(params, capacity)}
        return Cache(data, jnp.zeros_like(prompt_length)), PromptReading(embedding, encoded)
