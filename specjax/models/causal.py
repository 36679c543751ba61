"""Decoder-only transformers (GPT-2, Llama, Gemma, Qwen and others) with explicit caches.

One architecture with configurable parts: learned or rotary positions or slopes, one rotation or
one for each layer, layer or root-mean-square norms before or after a sublayer, plain or gated
feed-forward, biases, grouped key-value heads, query and key norms, windows, soft caps,
factors of embeddings, sublayers and logits. A
family (`hf/families/`) maps a checkpoint's fields to it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.altup import Streams
from specjax.models.attention import WHOLE_PROMPT, AnyBias
from specjax.models.base import Cache, Params, PromptReading
from specjax.models.caches import make_empty_cache
from specjax.models.causal_config import CausalConfig, Heads
from specjax.models.causal_layers import Layer, make_norm
from specjax.models.causal_masks import make_prompt_masks, make_step_masks, make_text_masks
from specjax.models.info import ModelInfo
from specjax.models.layer_inputs import LayerEmbedding
from specjax.models.layers import (
    Dense,
    Tree,
    apply,
    compute_tied_logits,
    init_params,
    multiply,
    pad_positions,
    rematerialize,
    soft_cap,
)
from specjax.models.linen import LinenModel
from specjax.models.positions import Turn, compute_angles
from specjax.models.prefill import read_in_chunks
from specjax.models.recurrent_caches import (
    Entries,
    LayerCache,
    LayerKeysValues,
    make_empty_recurrent_cache,
    make_layer_cache,
)
from specjax.models.stream_layers import StreamLayer


class CausalModule(nn.Module):
    """Parameters and layers; `Causal` wraps it into the model contract."""

    config: CausalConfig

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(0.02)
        shape = c.vocab_size, c.projected_width or c.d_model
        self.embedding = self.param("embedding", init, shape, jnp.float32)
        if c.projected_width:
            self.project_in = Dense(c.d_model, c.dtype)
            self.project_out = Dense(c.projected_width, c.dtype)
        if c.embedding_norm:
            self.embedding_norm = make_norm(c)
        if c.has_learned_positions:
            shape = (c.max_positions + c.position_offset, c.d_model)
            self.position_embedding = self.param("position_embedding", init, shape, jnp.float32)
        each = c.layer_ropes, c.layer_mixtures, c.layer_query_scales, c.layer_recurrences
        shapes = map(c.get_layer, range(c.num_layers))
        kind = StreamLayer if c.altup else Layer
        self.layers = [kind(*own) for own in zip(shapes, *each, strict=True)]
        if c.altup:
            self.streams = Streams(c.altup, c.d_model, c.dtype)
        if c.layer_inputs:
            self.layer_embedding = LayerEmbedding(c.layer_inputs, c.num_layers, c.eps, c.dtype)
        if c.final_norm:
            self.final_norm = make_norm(c)
        self.drop = nn.Dropout(c.dropout)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype, bias=c.head_bias)

    def embed(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """Embeds tokens at positions [B, T] into input states [B, T, D]."""
        c, x = self.config, self.embedding[tokens]
        if c.embedding_scale != 1.0:
            # Gemma was trained with the factor rounded to half precision.
            x = x.astype(c.dtype) * jnp.asarray(c.embedding_scale, c.dtype)
        if c.projected_width:
            x = self.project_in(x)
        if c.embedding_norm:
            x = self.embedding_norm(x)
        if c.has_learned_positions:
            row = position + c.position_offset
            x = x + jnp.take(self.position_embedding, row, axis=0, mode="clip")
        return x.astype(c.dtype)

    def open_residual(self, tokens: jax.Array, position: jax.Array) -> jax.Array:
        """Computes the states before the first layer; several streams are side by side."""
        x = self.embed(tokens, position)
        return self.streams.open_streams(x) if self.config.altup else x

    def merge_streams(self, x: jax.Array) -> jax.Array:
        """Computes states [..., D] of residual states, which may be several streams."""
        return self.streams.merge_streams(x) if self.config.altup else x

    def embed_for_layers(
        self, tokens: jax.Array, position: jax.Array
    ) -> Sequence[jax.Array | None] | jax.Array:
        """Computes what each layer reads of tokens [B, T] next to the residual stream."""
        if self.config.layer_inputs is None:
            return [None] * self.config.num_layers
        return self.layer_embedding(tokens, self.embed(tokens, position))

    def compute_layer_angles(
        self, position: jax.Array, length: jax.Array
    ) -> Sequence[Turn | jax.Array | None]:
        """Computes each layer's rotation angles, and the factor of queries if they have one."""
        angles = compute_angles(self.config.layer_ropes, position, length)
        temperature = self.config.temperature
        if temperature is None:
            return angles
        factor = temperature.compute_factor(position)
        return [
            one if temperature.unrotated and one is not None else Turn(one, factor)
            for one in angles
        ]

    def compute_logits(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Computes float32 logits [..., V] of residual states [..., D]."""
        return self.apply_lm_head(self.apply_final_norm(x), training)

    def apply_final_norm(self, x: jax.Array) -> jax.Array:
        x = self.merge_streams(x)
        return self.final_norm(x) if self.config.final_norm else x

    def apply_lm_head(self, x: jax.Array, training: bool = False) -> jax.Array:
        """Computes float32 logits [..., V] of normed states [..., D]."""
        c = self.config
        if c.projected_width:
            x = self.project_out(x)
        if c.tied:
            logits = compute_tied_logits(x, self.embedding, training)
        else:
            logits = self.head(x).astype(jnp.float32)
        if c.logit_scale != 1.0:
            logits = logits * c.logit_scale
        return soft_cap(logits, c.logit_cap)

    def run(
        self, tokens: jax.Array, length: jax.Array, deterministic: bool = True
    ) -> tuple[list[jax.Array], list[LayerKeysValues | Entries | None]]:
        """Runs whole rows [B, T] of `length` [B]; returns states, and what caches hold, by layer.

        Padding follows the tokens, where the causal mask hides it.
        """
        size = tokens.shape[1]
        position = jnp.broadcast_to(jnp.arange(size), tokens.shape)
        angles = self.compute_layer_angles(position, length[:, None])

        def one(layer: Layer, x: jax.Array, turn: Any, mask: AnyBias, *read: Any) -> Any:
            return layer(x, None, None, turn, mask, deterministic, None, *read)

        x = self.drop(self.open_residual(tokens, position), deterministic=deterministic)
        given = self.embed_for_layers(tokens, position)
        states, made, visible = [], [], {}
        masks = make_text_masks(self.config, jnp.zeros_like(length), size)
        for i, source in enumerate(self.config.cache_layers):
            read = self.layers[i], x, angles[i], masks[i], given[i], visible.get(source)
            x, keys_values, visible[i] = rematerialize(one, self.config.remat)(*read)
            states.append(x)
            made.append(keys_values)
        return states, made[: self.config.cached_layers]

    def read(
        self, tokens: jax.Array, length: jax.Array, features: tuple[int, ...]
    ) -> tuple[list[LayerKeysValues | Entries | None], jax.Array, tuple[jax.Array, ...]]:
        """Reads prompts [B, T]; returns keys and values, embeddings [B, D], and `features`."""
        states, made = self.run(tokens, length)
        last = jnp.take_along_axis(states[-1], (length - 1)[:, None, None], axis=1)[:, 0]
        embedding = self.apply_final_norm(last).astype(jnp.float32)
        return made, embedding, self.select_features(states, features)

    def select_features(
        self, states: Sequence[jax.Array], features: tuple[int, ...]
    ) -> tuple[jax.Array, ...]:
        """States [B, T, D] after the layers `features` (1-based), of those after every layer."""
        return tuple(self.merge_streams(states[number - 1]) for number in features)

    def read_on(
        self,
        tokens: jax.Array,
        own: list[LayerCache],
        start: jax.Array,
        length: jax.Array,
        features: tuple[int, ...],
    ) -> tuple[list[LayerCache], jax.Array, tuple[jax.Array, ...]]:
        """Reads prompt tokens [B, T] after the first `start` [B], whose caches are `own`.

        The embedding is that of the prompt's last token if it is in this chunk, else arbitrary.
        """
        size = tokens.shape[1]
        position = start[:, None] + jnp.arange(size)
        angles = self.compute_layer_angles(position, length[:, None])
        masks = make_prompt_masks(self.config, own, start, size, length)
        x, own, states, visible = self.open_residual(tokens, position), list(own), [], {}
        given = self.embed_for_layers(tokens, position)
        for i, source in enumerate(self.config.cache_layers):
            read = {"given": given[i], "shared": visible.get(source), "length": length}
            before = own[source], start, angles[i], masks[i]
            x, kept, visible[i] = self.layers[i](x, *before, **read)
            own[source] = own[source] if kept is None else kept
            states.append(x)
        last = (length - 1 - start)[:, None, None]
        last = jnp.take_along_axis(x, last, axis=1, mode="clip")[:, 0]
        embedding = self.apply_final_norm(last).astype(jnp.float32)
        return own, embedding, self.select_features(states, features)

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
    ) -> tuple[jax.Array, jax.Array, list[LayerCache], tuple[jax.Array, ...]]:
        """Runs `layers` (from, to) on tokens; returns logits, states, caches and features.

        Features are the states after the decoder layers `features` (1-based).
        """
        own = list(data["own"])
        fed = tokens.shape[1]
        position = start[:, None] + jnp.arange(fed) if tree is None else tree[0][:, -fed:]
        masks = make_step_masks(self.config, own, start, fed, tree)
        angles = self.compute_layer_angles(position, position + 1)
        given = self.embed_for_layers(tokens, position)
        x = self.open_residual(tokens, position) if resume is None else resume
        taken = {}
        for i in range(*layers):
            source = self.config.cache_layers[i]
            read = {"given": given[i], "shared": own[source] if source < i else None}
            x, kept, _ = self.layers[i](x, own[source], start, angles[i], masks[i], **read)
            own[source] = own[source] if kept is None else kept
            if i + 1 in features:
                taken[i + 1] = self.merge_streams(x)
        wanted = x if at is None else jnp.take_along_axis(x, at[..., None], axis=1, mode="clip")
        return self.compute_logits(wanted), x, own, tuple(taken[number] for number in features)

    def propagate(
        self, x: jax.Array, own: list[LayerCache], start: jax.Array, layers: tuple[int, int]
    ) -> list[LayerCache]:
        """Writes keys and values of states x [B, T, D] to the caches of `layers` (from, to)."""
        position = start[:, None] + jnp.arange(x.shape[1])
        angles = self.compute_layer_angles(position, position + 1)
        own, (first, last) = list(own), layers
        for i in range(first, min(last, self.config.cached_layers)):
            own[i] = self.layers[i].write_cache(x, own[i], start, angles[i])
        return own

    def states(
        self, tokens: jax.Array, length: jax.Array, deterministic: bool, exits: tuple[int, ...]
    ) -> tuple[jax.Array, ...]:
        """Computes teacher-forced states [B, T, D] after each layer of `exits`."""
        states, _ = self.run(tokens, length, deterministic)
        return tuple(
            self.drop(x, deterministic=deterministic) for x in self.select_features(states, exits)
        )

    def teach(
        self, tokens: jax.Array, length: jax.Array, deterministic: bool, exits: tuple[int, ...]
    ) -> tuple[jax.Array, ...]:
        """Computes teacher-forced logits [B, T, V] after each layer of `exits`."""
        states = self.states(tokens, length, deterministic, exits)
        return tuple(self.compute_logits(x, True) for x in states)

    def __call__(self, tokens: jax.Array, length: jax.Array) -> jax.Array:
        """Computes teacher-forced logits [B, T, V] of rows of `length` [B] tokens."""
        return self.teach(tokens, length, True, (self.config.num_layers,))[0]


@dataclasses.dataclass(frozen=True)
class Causal(LinenModel):
    """A decoder-only model (`models.base`).

    With dynamic rotary scaling, the rotation of a token depends on its row's length at the time it
    is fed: the whole length for a prompt, the current one for generated tokens.
    """

    config: CausalConfig

    @property
    def module(self) -> CausalModule:
        return CausalModule(self.config)

    @property
    def info(self) -> ModelInfo:
        c = self.config
        return ModelInfo(
            c.vocab_size,
            c.num_layers,
            c.eos,
            c.pad,
            max_positions=c.max_positions if c.has_learned_positions else None,
            drops_scale=c.final_norm,
        )

    def init(self, key: jax.Array) -> Params:
        """Initializes float32 parameters."""
        return init_params(self.module, key, (1, 1), (1,))

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        embedded = super().embed(params, tokens)
        if not self.config.projected_width:
            return embedded
        return multiply(embedded, params["project_in"]["kernel"].astype(embedded.dtype))

    def select_inputs(self, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        return batch["inputs"], batch["length"]

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
    ) -> tuple[Cache, PromptReading]:
        c, width = self.config, prompt.shape[1]
        prompt = prompt[:, :longest]
        step = prompt, prompt_length
        if prompt.shape[1] > WHOLE_PROMPT:
            own = self._make_empty_caches(len(prompt), capacity, ahead)
            own, embedding, taken = read_in_chunks(self.module, params, *step, own, features)
        else:
            made, embedding, taken = apply(self.module, "read", params, *step, features=features)
            own = [
                make_layer_cache(new, prompt_length, capacity, reach, ahead)
                for new, reach in zip(made, c.layer_reaches[: c.cached_layers], strict=True)
            ]
        taken = tuple(pad_positions(states, width) for states in taken)
        return Cache({"own": own}, prompt_length - 1), PromptReading(embedding, None, taken)

    def _make_empty_caches(self, rows: int, capacity: int, ahead: int | None) -> list[LayerCache]:
        c = self.config

        def make(mixes: bool, heads: Heads, kind: Any, reach: int) -> LayerCache:
            if not mixes:
                return None
            if kind is not None:
                entries = kind.make_entries(rows, c.dtype)
                return make_empty_recurrent_cache(entries, capacity, reach, ahead)
            shape = rows, heads.kv_heads, capacity, heads.width
            like = jax.ShapeDtypeStruct(shape, c.dtype)
            return make_empty_cache(like, reach, ahead, 0 if c.latent else None)

        each = c.layer_mixers, c.layer_heads, c.layer_recurrences, c.layer_reaches
        layers = itertools.islice(zip(*each, strict=True), c.cached_layers)
        return [make(*layer) for layer in layers]

    def read_part(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        begin: jax.Array,
        prompt_length: jax.Array,
        *,
        features: tuple[int, ...] = (),
    ) -> tuple[Cache, PromptReading]:
        """Reads tokens [B, T] of prompts from position `begin` [] on, after all before them.

        The first part is read into the empty cache of `start`. Embeddings are those of prompts that
        end in this part, others are arbitrary; features are of the part's positions.
        """
        start = jnp.full_like(prompt_length, begin)
        given = tokens, cache.data["own"], start, prompt_length
        own, embedding, taken = apply(self.module, "read_on", params, *given, features=features)
        return Cache({"own": own}, prompt_length - 1), PromptReading(embedding, None, taken)
