"""A parallel drafter on the target's features: one call on masks gives the laws of a whole draft.

Chen et al., "DFlash: Block Diffusion for Flash Speculative Decoding" (2026, arXiv 2602.06036)
(docs/methods/dflash.md). The target's states of several layers are fused into one vector per token,
of which every layer of the drafter makes keys and values. A block, the pending token and then
masks, attends to those of all tokens before it and, without causality, to itself. For
encoder-decoder targets each layer also attends to the target's own cross-attention keys and values.

Dimension letters as in `models.on_target`; A blocks of N tokens each are cut from a text.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.models.attention import AnyBias, of_call, of_texts, of_tree
from specjax.models.base import Cache, LanguageModel, Output, Params
from specjax.models.caches import KeysValues, update_cache, write
from specjax.models.layers import MASKED, Dense, RMSNorm, apply, call, key_mask
from specjax.models.on_target import (
    Cross,
    FeatureDrafter,
    Layer,
    OnCausalConfig,
    OnT5Config,
    OnTarget,
    OnTargetModule,
    select_last_state,
    slots_from,
)
from specjax.models.positions import RelativeBias, RelativeBiasOf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks(OnTarget):
    """What a drafter's shape says of its blocks."""

    block_size: int  # tokens of a block in training, the pending one among them
    mask_token: int | None = None  # whose embedding all masks have; None: each has one of its own
    target_depth: int | None = None  # layers of the target; None: its shape does not say


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlashT5Config(Blocks, OnT5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlashCausalConfig(Blocks, OnCausalConfig):
    """Shape of a drafter for a decoder-only target."""


Config = DFlashT5Config | DFlashCausalConfig


class BlocksBias(struct.PyTreeNode):
    """Tokens of blocks see the text before their anchor, and their own block (`attention.Bias`).

    Keys are the T tokens of the text and then those of all blocks.
    """

    anchors: jax.Array  # [B, A] position of the first token of each block
    table: jax.Array | None  # [H, 2 * C] bias by distance, as of `bias_rows`; None: there is none
    text: int = struct.field(pytree_node=False)  # T
    size: int = struct.field(pytree_node=False)  # N

    def tile(
        self, query: jax.Array | int, queries: int, key: jax.Array | int, keys: int
    ) -> jax.Array:
        block, position = self._placed(query + jnp.arange(queries))
        key = key + jnp.arange(keys)
        own, place = self._placed(key - self.text)
        anchor = self._anchor(block)
        in_text = key < self.text
        place = jnp.where(in_text, key, place)
        seen = jnp.where(in_text, key < anchor[..., None], own == block[:, None])
        bias = jnp.where(seen, 0.0, MASKED).astype(jnp.float32)[:, None]
        if self.table is None:
            return bias
        capacity = self.table.shape[1] // 2
        distance = place[:, None] - position[..., None]
        row = jnp.clip(capacity - 1 + distance, 0, 2 * capacity - 1)
        return bias + jnp.moveaxis(self.table[:, row], 0, 1)

    def _placed(self, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The block [Q] of tokens [Q] of blocks, and their positions [B, Q] in the text."""
        block = token // self.size
        return block, self._anchor(block) + token % self.size

    def _anchor(self, block: jax.Array) -> jax.Array:
        return jnp.take(self.anchors, block, axis=1, mode="clip")


class DFlashLayer(Layer[Config]):
    """Self-attention of a block over the states of the text and over itself."""

    def setup(self) -> None:
        super().setup()
        self.attention_norm = RMSNorm(self.config.eps)

    def of_text(self, fused: jax.Array, angles: jax.Array | None) -> KeysValues:
        """Keys and values of fused states [B, T, D], which have a norm of their own."""
        return self.projected(fused, angles)[1:]

    def of_block(
        self, x: jax.Array, angles: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values of a block's states [B, T, D]."""
        return self.projected(self.attention_norm(x), angles)


class DFlashModule(OnTargetModule[Config]):
    """Parameters and layers; `DFlash` wraps them into the model contract."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.mask_token is None:
            shape = c.block_size - 1, c.embedding_size
            self.mask = self.param("mask", nn.initializers.normal(1.0), shape, jnp.float32)
        self.fused_norm = RMSNorm(c.eps)
        if c.d_model != c.embedding_size:
            self.enter = Dense(c.d_model, c.dtype)
        self.layers = [DFlashLayer(c) for _ in range(c.layers)]
        if isinstance(c, OnT5Config):
            self.position_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, True)

    def fused(self, features: jax.Array) -> jax.Array:
        """Normed vectors [B, T, D] of the target's states [B, T, F * E]."""
        return self.fused_norm(self.fuse(features))

    def block(self, pending: jax.Array, size: int) -> jax.Array:
        """The first states [..., N, D] of blocks of `size` tokens: pending [...], then masks."""
        if self.config.mask_token is not None:
            behind = jnp.full((*pending.shape, size - 1), self.config.mask_token, jnp.int32)
            x = self.embed(jnp.concatenate([pending[..., None], behind], axis=-1))
        else:
            masks = self.mask[: size - 1].astype(self.config.dtype)
            masks = jnp.broadcast_to(masks, (*pending.shape, *masks.shape))
            x = jnp.concatenate([self.embed(pending)[..., None, :], masks], axis=-2)
        return x if self.config.d_model == self.config.embedding_size else self.enter(x)

    def reversed_bias(self, capacity: int) -> jax.Array:
        """Self-attention bias by position, to both sides, [H, 2 * capacity] (`bias_rows`)."""
        return self.position_bias(np.arange(-(capacity - 1), capacity + 1))

    def remember(
        self, features: jax.Array, own: list[KeysValues], slot: jax.Array
    ) -> list[KeysValues]:
        """The caches with keys and values of states [B, T, F * E] at slots `slot` [B] on."""
        fused, count = self.fused(features), features.shape[1]
        angles = self.angles(slot[:, None] + jnp.arange(count))
        slots = slots_from(slot, count, own[0][0].shape[2])

        def one(layer: DFlashLayer, pair: KeysValues) -> KeysValues:
            keys, values = layer.of_text(fused, angles)
            return write(pair[0], keys, slots), write(pair[1], values, slots)

        return [one(layer, pair) for layer, pair in zip(self.layers, own, strict=True)]

    def decode_step(
        self, tokens: jax.Array, data: dict[str, Any], start: jax.Array, at: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, list[KeysValues]]:
        """Logits [B, A, V], states [B, N, D], and the caches with the block behind the text."""
        own: list[KeysValues] = list(data["own"])
        fed = tokens.shape[1]
        angles = self.angles(start[:, None] + jnp.arange(fed))
        bias, cross = self._seen(data, start, fed), None
        if self.config.cross:
            cross = *data["cross"], data["cross_bias"]
        x = self.block(tokens[:, 0], fed)
        for i, layer in enumerate(self.layers):
            q, k, v = layer.of_block(x, angles)
            own[i] = update_cache(own[i], (k, v), start)
            x = layer(x, q, *own[i], bias, cross)
        return self.all_logits(x, at, data["places"]), x, own

    def _seen(self, data: dict[str, Any], start: jax.Array, fed: int) -> AnyBias:
        """The mask of a block from slot `start` [B] on: all before it, and all of it."""
        if self.config.cross:
            slots = data["bias"].shape[1] // 2
            return of_call(RelativeBiasOf(data["bias"], start, start + fed), start, fed, slots)
        slots = data["own"][0][0].shape[2]
        seen = key_mask(start + fed, slots)
        return of_tree(jnp.broadcast_to(seen, (len(seen), 1, fed, slots)), start)

    def blocks(
        self,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        anchors: jax.Array,
        size: int,
    ) -> jax.Array:
        """Logits [B, A, N - 1, U] of the tokens behind those at `anchors` [B, A] of texts [B, T].

        `features` [B, T, F * E] are the target's states at the text's tokens. A block sees those
        before its anchor, and no other block.
        """
        rows, count = anchors.shape
        position = (anchors[..., None] + jnp.arange(size)).reshape(rows, -1)
        text, fed = tokens.shape[1], position.shape[1]
        of_text = self.angles(jnp.broadcast_to(jnp.arange(text), tokens.shape))
        of_block, fused = self.angles(position), self.fused(features)
        table = self.reversed_bias(text + size) if self.config.cross else None
        bias = of_texts(BlocksBias(anchors, table, text, size), fed, text + fed)
        pending = jnp.take_along_axis(tokens, anchors, axis=1)
        x = self.block(pending, size).reshape(rows, fed, -1)
        for layer in self.layers:
            q, *made = layer.of_block(x, of_block)
            pairs = zip(layer.of_text(fused, of_text), made, strict=True)
            keys, values = (jnp.concatenate(pair, axis=2) for pair in pairs)
            x = layer(x, q, keys, values, bias, cross)
        return self.drafted_logits(x.reshape(rows, count, size, -1)[:, :, 1:])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """One block, behind states of zeros: what initialisation needs to see."""
        anchors = jnp.zeros_like(tokens[:, :1])
        return self.blocks(tokens, *self.nothing_read(*tokens.shape), anchors, 2)


@dataclasses.dataclass(frozen=True)
class DFlash(FeatureDrafter):
    """The drafter under the model contract.

    Its cache holds keys and values of the target's states below the pointer. Of the tokens that a
    call feeds only the first is read, the others are masks; what the call leaves in the cache is
    the block's, and overwritten.
    """

    config: Config

    @property
    def module(self) -> DFlashModule:
        return DFlashModule(self.config)

    def adapt_to(self, target: LanguageModel) -> Self:
        """As of any feature drafter; refuses another depth or vocabulary than it was made for.

        Raises:
          ValueError: when this target has it, or lacks what the checkpoint leaves to it.
        """
        c = self.config
        made_for = {} if c.target_depth is None else {"depth": (c.target_depth, target.info.depth)}
        if not c.embedded:
            made_for["vocabulary"] = c.vocab_size, target.config.vocab_size
        for what, (ours, theirs) in made_for.items():
            if ours != theirs:
                raise ValueError(
                    f"it was made for a target of {what} {ours}; this one has {theirs}"
                )
        return super().adapt_to(target)

    def initialize_params(self, params: Params, layer: Params, basis: jax.Array | None) -> Params:
        """With masks as large as the embeddings of tokens are, where they are no token."""
        if basis is not None:
            params = {**params, "fuse": select_last_state(params["fuse"], basis)}
        if "mask" not in params:
            return params
        size = jnp.sqrt(jnp.mean(jnp.square(params["embedding"])))
        return {**params, "mask": params["mask"] * size}

    def blocks(
        self,
        params: Params,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        anchors: jax.Array,
        size: int,
    ) -> jax.Array:
        """`DFlashModule.blocks`, for training."""
        return call(self.module, "blocks", params, tokens, features, cross, anchors, size)

    def absorb(self, params: Params, cache: Cache, features: jax.Array, slot: jax.Array) -> Cache:
        own = apply(self.module, "remember", params, features, cache.data["own"], slot)
        return cache.replace(data={**cache.data, "own": own})

    def read(self, params: Params, cache: Cache, tokens: jax.Array, features: jax.Array) -> Cache:
        return self.absorb(params, cache, features, jnp.zeros_like(cache.length))

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        at: jax.Array | None = None,
        **how: Any,
    ) -> tuple[Output, Cache]:
        step = tokens, cache.data, cache.length, at
        logits, states, own = apply(self.module, "decode_step", params, *step)
        data = {**cache.data, "own": own}
        return Output(logits, states), Cache(data, cache.length + tokens.shape[1])
