"""Layers of drafters that read the keys and values of their target's layers (`models.assistant`).

As in EAGLE-3 a token is read next to the state before it: the target's last one, and after drafted
tokens what the drafter makes of its own. All queries of a draft have the position of the pending
token and attend to the text before it, so drafted tokens see each other by the states alone.

Dimension letters as in `models.on_target`; G centroids group the ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models import causal_layers, t5
from specjax.models.attention import AnyBias, make_call_bias
from specjax.models.caches import KeysValues, Ring, get_held_slots
from specjax.models.layers import MASKED, Dense, Tree, compute_tied_logits, make_causal_mask
from specjax.models.norms import RMSNorm
from specjax.models.on_target import Cross, Layer, OnTargetModule
from specjax.models.positions import RelativeBias, RelativeBiasOf, compute_angles
from specjax.models.target_shapes import OnCausalConfig, OnT5Config

MORE = 1
"""Tokens that a window reaches beyond its size: that of transformers counts from the last token
before the query, and includes its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssistantCausalConfig(OnCausalConfig):
    """Shape of a drafter for a decoder-only target."""

    reads_cache: bool = True
    sources: tuple[int, ...] = ()  # target layer whose cache each layer reads; (): not known yet
    centroids: int = 0  # groups of ids; 0: all logits are computed
    best_centroids: int = 0  # groups whose ids can be drafted after a state

    @property
    def memory_heads(self) -> tuple[tuple[int, int], ...]:
        """Number and width of the key heads that each layer reads."""
        return tuple((heads.kv_heads, heads.width) for heads in self.layer_heads)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssistantT5Config(OnT5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""

    sources: tuple[int, ...] = ()

    @property
    def memory_heads(self) -> tuple[tuple[int, int], ...]:
        """Number and width of the key heads that each layer reads."""
        return ((self.num_heads, self.d_kv),) * self.layers


Memory = Sequence[tuple[jax.Array, jax.Array]]
"""Keys and values [B, G, C, d] of the target's layers that each layer reads; layers differ in their
heads."""

AssistantConfig = AssistantCausalConfig | AssistantT5Config
Config = TypeVar("Config", AssistantCausalConfig, AssistantT5Config)


def list_sources(config: AssistantConfig) -> tuple[int, ...]:
    """The target layer whose cache each layer reads; before it is known, one of its own."""
    return config.sources or tuple(range(config.layers))


def make_empty_memory(config: AssistantConfig, rows: int) -> dict[str, Any]:
    """Keys and values [B, G, 1, d] of zeros in place of the target's."""
    made: dict[str, Any] = {}
    for source, (heads, width) in zip(list_sources(config), config.memory_heads, strict=True):
        zeros = jnp.zeros((rows, heads, 1, width), config.dtype)
        made[str(source)] = zeros, zeros
    return made


class AssistantModule(OnTargetModule[Config]):
    """Parameters and layers; `Assistant` wraps them into the model contract."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if not c.normed:
            self.state_norm = RMSNorm(c.eps)
        self.join = Dense(c.d_model, c.dtype)
        self.next_state = Dense(c.target_width, c.dtype)
        normal, shape = jax.nn.initializers.normal(1.0), (c.draft_vocab, c.d_model)
        self.output_embedding = self.param("output_embedding", normal, shape, jnp.float32)

    def run_layers(
        self,
        x: Float[Array, "B T D"],
        position: Int[Array, "B T"],
        memory: Memory,
        biases: Sequence[AnyBias],
        cross: Cross | None,
    ) -> Float[Array, "B T D"]:
        """The states [B, T, D] behind the layers; each has its memory and its bias."""
        raise NotImplementedError

    def make_step_biases(self, memory: Memory, data: dict[str, Any], queries: int) -> list[AnyBias]:
        """Biases of a call on `queries` tokens: the text before the pending token is seen."""
        raise NotImplementedError

    def make_text_biases(self, size: int) -> list[AnyBias]:
        """Biases of every token of a text, each of which sees those before it."""
        raise NotImplementedError

    def compute_distance_bias(self, capacity: int) -> Float[Array, "H 2*{capacity}"]:
        """Bias by distance, [H, 2 * C] (see `compute_bias_rows`), of a drafter with an encoder."""
        raise NotImplementedError

    def fuse_states(self, features: Float[Array, "B T E"]) -> Float[Array, "B T E"]:
        """The target's states [B, T, E] as the drafter reads them."""
        return self.target_norm(features) if self.config.normed else self.state_norm(features)

    def read_out(self, normed: Float[Array, "B A D"]) -> Float32[Array, "B A U"]:
        """Logits [B, A, U] of normed states."""
        return compute_tied_logits(normed, self.output_embedding, training=False)

    def compute_states(
        self, tokens: Int[Array, "B T"], before: Float[Array, "B T E"], *given: Any
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T E"]]:
        """Normed states [B, T, D] of tokens, and those [B, T, E] that the next ones read.

        `given` are the arguments of `run_layers` after the first.
        """
        x = self.join(jnp.concatenate([self.embed(tokens), before], axis=-1))
        normed = self.final_norm(self.run_layers(x, *given))
        return normed, self.next_state(normed)

    def decode_step(
        self,
        tokens: Int[Array, "B T"],
        before: Float[Array, "B T E"],
        data: dict[str, Any],
        start: Int[Array, " B"],
        at: Int[Array, "B A"] | None,
        tree: Tree | None,
    ) -> tuple[Float32[Array, "B A V"], Float[Array, "B T E"], list[KeysValues]]:
        """Logits [B, A, V] after tokens [B, T], and the states [B, T, E] that the next ones read.

        Neither the slots from `start` [B] on nor the shape of a `tree` change what a token sees.
        """
        c = self.config
        position = jnp.broadcast_to(data["pending"][:, None], tokens.shape)
        memory = [data["memory"][str(source)] for source in list_sources(c)]
        biases = self.make_step_biases(memory, data, tokens.shape[1])
        cross = (*data["cross"], data["cross_bias"]) if c.cross else None
        normed, states = self.compute_states(tokens, before, position, memory, biases, cross)
        if at is not None:
            normed = jnp.take_along_axis(normed, at[..., None], axis=1, mode="clip")
        return self.to_target_ids(self.read_out(normed), data["places"]), states, data["own"]

    def unroll_draft(
        self,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T E"],
        memory: Memory,
        cross: Cross | None,
        steps: int,
    ) -> list[Float32[Array, "B T U"]]:
        """Logits [B, T, U] of every step of the drafts behind each pending token [B, T] of texts.

        `features` [B, T, E] are the target's last states at the tokens, `memory` its keys and
        values of the layers that are read. Step k at position t gives token t + k + 1, with the
        text's own tokens before it. The first token's draft sees nothing that exists.
        """
        size = tokens.shape[1]
        position = jnp.broadcast_to(jnp.arange(size), tokens.shape)
        biases = self.make_text_biases(size)
        state = jnp.pad(self.fuse_states(features), ((0, 0), (1, 0), (0, 0)))[:, :-1]
        logits = []
        for step in range(steps):
            fed = jnp.pad(tokens, ((0, 0), (0, step)))[:, step:]
            normed, state = self.compute_states(fed, state, position, memory, biases, cross)
            logits.append(compute_tied_logits(normed, self.output_embedding, training=True))
        return logits

    def __call__(self, tokens: Int[Array, "B T"]) -> Float32[Array, "B T V"]:
        """One step, on states of zeros: what initialization needs to see."""
        features, cross = self.make_zero_inputs(*tokens.shape)
        memory = make_empty_memory(self.config, len(tokens))
        data: dict[str, Any] = {
            "own": [],
            "places": self.compute_places(),
            "pending": jnp.ones(len(tokens), jnp.int32),
            "memory": memory,
        }
        if cross is not None:
            data |= {"cross": cross[:2], "cross_bias": cross[2]}
            data["bias"] = self.compute_distance_bias(1)
        before, start = self.fuse_states(features), data["pending"]
        return self.decode_step(tokens, before, data, start, None, None)[0]


class CausalAssistantModule(AssistantModule[AssistantCausalConfig]):
    """Layers of a decoder-only model."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        each = enumerate(zip(c.layer_ropes, c.layer_query_scales, strict=True))
        self.layers = [
            causal_layers.Layer(c.get_layer(number), rope, None, scale)
            for number, (rope, scale) in each
        ]
        if c.centroids:
            self.centroids = Dense(c.centroids, c.dtype)
            self.order = self.param("order", lambda _: jnp.arange(c.draft_vocab, dtype=jnp.int32))

    def embed(self, tokens: Int[Array, " ..."]) -> Float[Array, "... W"]:
        return super().embed(tokens) * jnp.asarray(self.config.embedding_scale, self.config.dtype)

    def run_layers(
        self,
        x: Float[Array, "B T D"],
        position: Int[Array, "B T"],
        memory: Memory,
        biases: Sequence[AnyBias],
        cross: Cross | None,
    ) -> Float[Array, "B T D"]:
        angles = compute_angles(self.config.layer_ropes, position, position + 1)
        for layer, turn, pair, bias in zip(self.layers, angles, memory, biases, strict=True):
            x, *_ = layer(x, None, None, turn, bias, shared=pair)
        return x

    def make_step_biases(self, memory: Memory, data: dict[str, Any], queries: int) -> list[AnyBias]:
        last = data["pending"] - 1
        return [
            make_memory_bias(pair, window, last, queries)
            for pair, window in zip(memory, self.config.layer_windows, strict=True)
        ]

    def make_text_biases(self, size: int) -> list[AnyBias]:
        last = jnp.maximum(jnp.arange(size) - 1, 0)[None]
        return [
            make_causal_mask(last, jnp.arange(size), window + MORE if window else 0)
            for window in self.config.layer_windows
        ]

    def read_out(self, normed: Float[Array, "B A D"]) -> Float32[Array, "B A U"]:
        """Logits [B, A, U] of normed states; with centroids, of the ids of the best of them."""
        c = self.config
        if not c.centroids:
            return super().read_out(normed)
        best = jax.lax.top_k(self.centroids(normed), c.best_centroids)[1]
        ids = self.order.reshape(c.centroids, -1)[best].reshape(*normed.shape[:-1], -1)
        found = jnp.einsum(
            "bad,baud->bau",
            normed,
            self.output_embedding[ids].astype(normed.dtype),
            preferred_element_type=jnp.float32,
        )
        others = jnp.full((*normed.shape[:-1], c.draft_vocab), MASKED, jnp.float32)
        return jnp.put_along_axis(others, ids, found, axis=-1, inplace=False)


class MemoryBias(struct.PyTreeNode):
    """All queries attend up to the position `last`, within `window` of it if not 0."""

    last: Int32[Array, " B"]
    window: int = struct.field(pytree_node=False, default=0)
    slots: Int32[Array, "B C"] | None = None  # position of each key; None: its index

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        position = jnp.broadcast_to(self.last[:, None], (len(self.last), queries))
        if self.slots is None:
            return make_causal_mask(position, key + jnp.arange(keys), self.window)
        slots = jax.lax.dynamic_slice_in_dim(self.slots, key, keys, axis=1)
        return make_causal_mask(position, slots, self.window)


def make_memory_bias(own: KeysValues, window: int, last: Int[Array, " B"], queries: int) -> AnyBias:
    """Builds the mask over a target's cache `own` of slots up to `last` [B].

    A text of one token has none before it, and attends to its own.
    """
    last, window = jnp.maximum(last, 0), window + MORE if window else 0
    ring = isinstance(own, Ring)
    slots = get_held_slots(own, last + 1)
    bias = MemoryBias(last, window, slots if ring else None)
    return make_call_bias(bias, last, queries, own[0].shape[2], 0 if ring else window)


class MemoryLayer(Layer[AssistantT5Config]):
    """A layer of T5's kind whose keys and values are the target's."""

    def setup(self) -> None:
        super().setup()
        self.attention_norm = RMSNorm(self.config.eps)

    def attend(
        self, x: Float[Array, "B T D"], memory: KeysValues, bias: AnyBias, cross: Cross | None
    ) -> Float[Array, "B T D"]:
        """The states [B, T, D] behind the layer on a residual stream x [B, T, D]."""
        assert isinstance(self.attention, t5.Attention)
        return self(x, self.attention.queries(self.attention_norm(x)), *memory, bias, cross)


class RelativeMemoryBias(struct.PyTreeNode):
    """Relative positions of keys before the pending token, whose position all queries have."""

    pending: RelativeBiasOf

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        one = self.pending.tile(0, 1, key, keys)
        return jnp.broadcast_to(one, (*one.shape[:2], queries, keys))


class T5AssistantModule(AssistantModule[AssistantT5Config]):
    """Layers of T5's kind, which also attend to what the target has encoded."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.layers = [MemoryLayer(c) for _ in range(c.layers)]
        self.position_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, False)

    def run_layers(
        self,
        x: Float[Array, "B T D"],
        position: Int[Array, "B T"],
        memory: Memory,
        biases: Sequence[AnyBias],
        cross: Cross | None,
    ) -> Float[Array, "B T D"]:
        for layer, pair, bias in zip(self.layers, memory, biases, strict=True):
            x = layer.attend(x, pair, bias, cross)
        return x

    def compute_distance_bias(self, capacity: int) -> Float[Array, "H 2*{capacity}"]:
        return self.position_bias(np.arange(-(capacity - 1), capacity + 1))

    def make_step_biases(self, memory: Memory, data: dict[str, Any], queries: int) -> list[AnyBias]:
        slots, seen = memory[0][0].shape[2], jnp.maximum(data["pending"], 1)
        bias = RelativeMemoryBias(RelativeBiasOf(data["bias"], data["pending"], seen))
        return [make_call_bias(bias, seen - 1, queries, slots)] * len(memory)

    def make_text_biases(self, size: int) -> list[AnyBias]:
        place = np.arange(size)
        distance = place[None, :] - place[:, None]
        seen = place[None, :] <= np.maximum(place[:, None] - 1, 0)
        bias = self.position_bias(distance) + np.where(seen, 0.0, MASKED)
        return [bias[None].astype(jnp.float32)] * self.config.layers
