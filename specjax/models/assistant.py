"""A drafter without a cache of its own: its layers read keys and values of its target's layers.

Gemma 4 assistants (Google 2026, docs/methods/eagle.md). As in EAGLE-3 a token is read next to the
state before it: the target's last one after its final norm, and after drafted tokens what the
drafter makes of its own. All queries of a draft have the position of the pending token and attend
to the text before it, whose keys and values are in the target's caches. So drafted tokens see each
other by the states alone.

Dimension letters as in `models.on_target`; G centroids group the ids.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models import causal_layers
from specjax.models.attention import AnyBias, make_call_bias
from specjax.models.base import Cache, LanguageModel, Params, PromptReading, Prompts
from specjax.models.caches import KeysValues, Ring, get_held_slots
from specjax.models.causal_config import CausalConfig
from specjax.models.layers import MASKED, Dense, Tree, compute_tied_logits, make_causal_mask
from specjax.models.on_target import OnTargetModule
from specjax.models.positions import compute_angles
from specjax.models.state_drafter import StateDrafter
from specjax.models.target_shapes import OnCausalConfig, adapt_shape

MORE = 1
"""Tokens that a window reaches beyond its size: that of transformers counts from the last token
before the query, and includes its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssistantConfig(OnCausalConfig):
    """Shape of a drafter whose layers read the target's caches."""

    sources: tuple[int, ...] = ()  # target layer whose cache each layer reads; (): not known yet
    centroids: int = 0  # groups of ids; 0: all logits are computed
    best_centroids: int = 0  # groups whose ids can be drafted after a state

    @property
    def layer_sources(self) -> tuple[int, ...]:
        """The target layer whose cache each layer reads; before it is known, one of its own."""
        return self.sources or tuple(range(self.num_layers))


class AssistantModule(OnTargetModule[AssistantConfig]):
    """Parameters and layers; `Assistant` wraps them into the model contract."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.join = Dense(c.d_model, c.dtype)
        self.next_state = Dense(c.target_width, c.dtype)
        each = enumerate(zip(c.layer_ropes, c.layer_query_scales, strict=True))
        self.layers = [
            causal_layers.Layer(c.get_layer(number), rope, None, scale)
            for number, (rope, scale) in each
        ]
        normal = jax.nn.initializers.normal(1.0)
        self.table = self.param("table", normal, (c.draft_vocab, c.d_model), jnp.float32)
        if c.centroids:
            self.centroids = Dense(c.centroids, c.dtype)
            self.order = self.param("order", lambda _: jnp.arange(c.draft_vocab, dtype=jnp.int32))

    def fuse_states(self, features: Float[Array, "B T E"]) -> Float[Array, "B T E"]:
        """The target's states [B, T, E] as the drafter reads them."""
        return self.target_norm(features)

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
        embedded = self.embed(tokens) * jnp.asarray(c.embedding_scale, c.dtype)
        x = self.join(jnp.concatenate([embedded, before], axis=-1))
        position = jnp.broadcast_to(data["pending"][:, None], tokens.shape)
        angles = compute_angles(c.layer_ropes, position, position + 1)
        for layer, turn, source, window in zip(
            self.layers, angles, c.layer_sources, c.layer_windows, strict=True
        ):
            memory = data["memory"][str(source)]
            bias = make_memory_bias(memory, window, data["pending"] - 1, tokens.shape[1])
            x, *_ = layer(x, None, None, turn, bias, shared=memory)
        normed = self.final_norm(x)
        states = self.next_state(normed)
        if at is not None:
            normed = jnp.take_along_axis(normed, at[..., None], axis=1, mode="clip")
        return self.to_target_ids(self.read_out(normed), data["places"]), states, data["own"]

    def read_out(self, normed: Float[Array, "B A D"]) -> Float32[Array, "B A U"]:
        """Logits [B, A, U] of normed states; with centroids, of the ids of the best of them."""
        c = self.config
        if not c.centroids:
            return compute_tied_logits(normed, self.table, training=False)
        best = jax.lax.top_k(self.centroids(normed), c.best_centroids)[1]
        ids = self.order.reshape(c.centroids, -1)[best].reshape(*normed.shape[:-1], -1)
        found = jnp.einsum(
            "bad,baud->bau",
            normed,
            self.table[ids].astype(normed.dtype),
            preferred_element_type=jnp.float32,
        )
        others = jnp.full((*normed.shape[:-1], c.draft_vocab), MASKED, jnp.float32)
        return jnp.put_along_axis(others, ids, found, axis=-1, inplace=False)

    def __call__(self, tokens: Int[Array, "B T"]) -> Float32[Array, "B T V"]:
        """One step, on states of zeros: what initialization needs to see."""
        rows = len(tokens)
        before = self.fuse_states(jnp.zeros((*tokens.shape, self.config.target_width)))
        data = {
            "own": [],
            "places": self.compute_places(),
            "pending": jnp.ones(rows, jnp.int32),
            "memory": make_empty_memory(self.config, rows),
        }
        start = data["pending"]
        return self.decode_step(tokens, before, data, start, None, None)[0]


def make_empty_memory(config: AssistantConfig, rows: int) -> dict[str, KeysValues]:
    """Keys and values [B, G, 1, d] of zeros in place of the target's."""
    made = {}
    for source, heads in zip(config.layer_sources, config.layer_heads, strict=True):
        zeros = jnp.zeros((rows, heads.kv_heads, 1, heads.width), config.dtype)
        made[str(source)] = zeros, zeros
    return made


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


@dataclasses.dataclass(frozen=True)
class Assistant(StateDrafter):
    """The drafter under the model contract.

    While it drafts its cache holds the target's keys and values (`borrow`); otherwise one slot of
    zeros stands for them, and for others' measurements.
    """

    config: AssistantConfig

    @property
    def module(self) -> AssistantModule:
        return AssistantModule(self.config)

    def adapt_to(self, target: LanguageModel) -> Self:
        """This drafter with the layers of the target whose caches it reads.

        Raises:
          ValueError: when this target does not have them.
        """
        theirs = target.config
        if not isinstance(theirs, CausalConfig):
            raise ValueError(
                f"it reads the caches of a decoder-only target; this one, of family"
                f" {theirs.family!r}, is none"
            )
        if self.config.vocab_size != theirs.vocab_size:
            raise ValueError(
                f"it was made for a target of {self.config.vocab_size} ids; this one has"
                f" {theirs.vocab_size}"
            )
        sources = find_sources(self.config, theirs)
        own = {"features": (target.info.depth,), "sources": sources, "target_eps": theirs.eps}
        shape = adapt_shape(dataclasses.replace(self.config, **own), target)
        return dataclasses.replace(self, config=shape)

    def start(
        self,
        params: Params,
        prompt: Prompts,
        prompt_length: Int[Array, " B"],
        capacity: int,
        **how: Any,
    ) -> tuple[Cache, PromptReading]:
        cache, reading = super().start(params, prompt, prompt_length, capacity, **how)
        c, rows = self.config, len(prompt)
        data = {
            "states": jnp.zeros((rows, capacity, c.target_width), c.dtype),
            "pending": cache.length,
            "memory": make_empty_memory(c, rows),
        }
        return cache.replace(data={**cache.data, **data}), reading

    def make_empty_caches(self, rows: int, capacity: int) -> list[KeysValues]:
        return []

    def read(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "B P"],
        features: Float[Array, "B P FE"],
    ) -> Cache:
        return self.absorb(params, cache, features, jnp.zeros_like(cache.length))

    def borrow(self, cache: Cache, target: Cache, length: Int[Array, " B"]) -> Cache:
        """The cache before the pending token of texts of `length` [B], with a target's caches."""
        memory = {name: target.data["own"][int(name)] for name in cache.data["memory"]}
        return Cache({**cache.data, "pending": length - 1, "memory": memory}, length - 1)


def find_sources(config: AssistantConfig, target: CausalConfig) -> tuple[int, ...]:
    """The target layer whose cache each layer reads: the last of its kind that has one.

    Raises:
      ValueError: when there is none, or its heads or window are others.
    """
    found = []
    for heads, window in zip(config.layer_heads, config.layer_windows, strict=True):
        like = [
            layer
            for layer in target.attending_layers
            if bool(target.layer_windows[layer]) == bool(window) and layer < target.cached_layers
        ]
        theirs = (*target.layer_heads[like[-1]][:2], target.layer_windows[like[-1]]) if like else ()
        ours = (*heads[:2], window)
        if target.latent or theirs != ours:
            raise ValueError(
                f"it reads a layer of {ours[0]} key heads of width {ours[1]} and window {window}"
                f" (0: none); this target's last such layer, of family {target.family!r}, has"
                f" {' and '.join(map(str, theirs)) or 'none'}"
            )
        found.append(like[-1])
    return tuple(found)
