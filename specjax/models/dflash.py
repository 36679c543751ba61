"""A parallel drafter on the target's features: one call on masks gives a whole draft.

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

from specjax.models.attention import AnyBias, make_text_bias
from specjax.models.base import Cache, LanguageModel, Output, Params
from specjax.models.block_masks import BlocksBias, make_block_mask
from specjax.models.caches import KeysValues, update_cache, write
from specjax.models.convolution import Convolution, DynamicConvolution
from specjax.models.correction import BlockLogits, Correction, Corrector
from specjax.models.layers import Dense, apply, call
from specjax.models.norms import RMSNorm
from specjax.models.on_target import (
    Cross,
    FeatureDrafter,
    Layer,
    OnTargetModule,
    list_slots,
    select_last_state,
)
from specjax.models.positions import RelativeBias
from specjax.models.target_shapes import OnCausalConfig, OnT5Config, OnTarget


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks(OnTarget):
    """What a drafter's shape says of its blocks."""

    block_size: int  # tokens of a block in training, the pending one among them
    mask_token: int | None = None  # whose embedding all masks have; None: each has one of its own
    target_depth: int | None = None  # layers of the target; None: its shape does not say
    anchor_first: bool = False  # place k is of the token after it, not of its own: a place less
    is_causal: bool | None = False  # places see none after them; None: in layers with a window
    correction: Correction | None = None
    convolution: Convolution | None = None

    @property
    def skipped_places(self) -> int:
        """Places of a block before the first that gives a distribution."""
        return 0 if self.anchor_first else 1

    @property
    def longest(self) -> int:
        """Most drafted tokens."""
        return self.block_size - self.skipped_places


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlashT5Config(Blocks, OnT5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlashCausalConfig(Blocks, OnCausalConfig):
    """Shape of a drafter for a decoder-only target."""


Config = DFlashT5Config | DFlashCausalConfig


def list_layer_masks(config: Config) -> tuple[tuple[bool, int], ...]:
    """For each layer, whether it is causal inside of a block, and its window, 0 for none."""
    causal = config.is_causal
    windows = (0,) * config.layers if isinstance(config, OnT5Config) else config.layer_windows
    return tuple((bool(one) if causal is None else causal, one) for one in windows)


class DFlashLayer(Layer[Config]):
    """Self-attention of a block over the states of the text and over itself."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.attention_norm = RMSNorm(c.eps)
        if c.convolution:
            kernels = c.convolution, c.d_model, c.dtype
            self.attention_conv = DynamicConvolution(*kernels)
            self.ff_conv = DynamicConvolution(*kernels)

    def project_text(self, fused_states: jax.Array, angles: jax.Array | None) -> KeysValues:
        """Projects fused states [B, T, D], which have a norm of their own, to keys and values."""
        return self.project_inputs(fused_states, angles)[1:]

    def project_block(
        self, x: jax.Array, angles: jax.Array | None, size: int
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Projects the states [B, T, D] of blocks of `size` to queries, keys and values."""
        h = self.attention_norm(x)
        if self.config.convolution:
            h = self.attention_conv(h, self.attention_conv.kernels(h), 0, size)
        return self.project_inputs(h, angles)

    def run_block(
        self,
        x: jax.Array,
        qkv: tuple[jax.Array, jax.Array, jax.Array],
        bias: AnyBias,
        cross: Cross | None,
        size: int,
    ) -> jax.Array:
        """Computes the states [B, T, D] after the layer of x and queries, keys and values."""
        if not self.config.convolution:
            return self(x, *qkv, bias, cross)
        kernels = self.attention_conv.kernels(self.attention_norm(x))
        attended = self.attention_conv(self.attention(*qkv, bias), kernels, 1, size)
        x = self.read_prompt(x + attended, cross)
        h = self.ff_norm(x)
        kernels = self.ff_conv.kernels(h)
        h = self.ff(self.ff_conv(h, kernels, 0, size))
        return x + self.ff_conv(h, kernels, 1, size)


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
        if c.correction:
            self.corrector = Corrector(c.correction, c.vocab_size, c.draft_vocab, c.dtype)
        if isinstance(c, OnT5Config):
            self.position_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, True)

    def fuse_states(self, features: jax.Array) -> jax.Array:
        """Fuses the target's states [B, T, F * E] into normed vectors [B, T, D]."""
        return self.fused_norm(self.fuse(features))

    def embed_block(self, pending: jax.Array, size: int) -> jax.Array:
        """Embeds blocks of `size` tokens into states [..., N, D]: pending [...], then masks."""
        if self.config.mask_token is not None:
            masks = jnp.full((*pending.shape, size - 1), self.config.mask_token, jnp.int32)
            x = self.embed(jnp.concatenate([pending[..., None], masks], axis=-1))
        else:
            masks = self.mask[: size - 1].astype(self.config.dtype)
            masks = jnp.broadcast_to(masks, (*pending.shape, *masks.shape))
            x = jnp.concatenate([self.embed(pending)[..., None, :], masks], axis=-2)
        return x if self.config.d_model == self.config.embedding_size else self.enter(x)

    def compute_distance_bias(self, capacity: int) -> jax.Array:
        """Computes bias by distance to both sides, [H, 2 * C] (see `compute_bias_rows`)."""
        return self.position_bias(np.arange(-(capacity - 1), capacity + 1))

    def write_features(
        self, features: jax.Array, own: list[KeysValues], slot: jax.Array
    ) -> list[KeysValues]:
        """Writes keys and values of states [B, T, F * E] into the caches from `slot` [B] on."""
        fused_states, count = self.fuse_states(features), features.shape[1]
        angles = self.compute_angles(slot[:, None] + jnp.arange(count))
        slots = list_slots(slot, count, own[0][0].shape[2])

        def one(layer: DFlashLayer, pair: KeysValues) -> KeysValues:
            keys, values = layer.project_text(fused_states, angles)
            return write(pair[0], keys, slots), write(pair[1], values, slots)

        return [one(layer, pair) for layer, pair in zip(self.layers, own, strict=True)]

    def decode_step(
        self, tokens: jax.Array, data: dict[str, Any], start: jax.Array, at: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, list[KeysValues]]:
        """Logits [B, A, V], states [B, N, D], and the caches with the block after the text."""
        x, own = self.compute_block_states(tokens[:, 0], data, start, tokens.shape[1])
        return self.compute_target_logits(x, at, data["places"]), x, own

    def draft_block(
        self, tokens: jax.Array, data: dict[str, Any], start: jax.Array
    ) -> tuple[jax.Array, jax.Array, list[KeysValues]]:
        """Logits [B, K, U] of the drafted tokens, normed states [B, K, D], and the caches."""
        x, own = self.compute_block_states(tokens[:, 0], data, start, tokens.shape[1])
        normed = self.final_norm(x[:, self.config.skipped_places :])
        return self.read_out(normed), normed, own

    def compute_block_states(
        self, pending: jax.Array, data: dict[str, Any], start: jax.Array, size: int
    ) -> tuple[jax.Array, list[KeysValues]]:
        """Computes states [B, N, D] of the block of a pending token [B], and the caches with it."""
        own: list[KeysValues] = list(data["own"])
        angles = self.compute_angles(start[:, None] + jnp.arange(size))
        table, slots = data.get("bias"), data["own"][0][0].shape[2]
        masks = list_layer_masks(self.config)
        biases = {mask: make_block_mask(start, size, slots, table, *mask) for mask in masks}
        cross = (*data["cross"], data["cross_bias"]) if self.config.cross else None
        x = self.embed_block(pending, size)
        for i, (layer, mask) in enumerate(zip(self.layers, masks, strict=True)):
            q, k, v = layer.project_block(x, angles, size)
            own[i] = update_cache(own[i], (k, v), start)
            x = layer.run_block(x, (q, *own[i]), biases[mask], cross, size)
        return x, own

    def correct(
        self,
        logits: jax.Array,
        hidden: jax.Array,
        tokens: jax.Array,
        state: jax.Array,
        place: jax.Array,
        places: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """`Corrector` on logits [..., U], but the corrected ones are of all ids, [..., V]."""
        given = logits, hidden, tokens, self.embed(tokens), state, place
        logits, state, confidence = self.corrector(*given)
        return self.to_target_ids(logits, places), state, confidence

    def compute_block_logits(
        self,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        anchors: jax.Array,
        size: int,
        all_tokens: bool = False,
    ) -> BlockLogits:
        """Computes logits [B, A, K, U] of the tokens after `anchors` [B, A] of texts [B, T].

        `features` [B, T, F * E] are the target's states at the text's tokens. A block sees those
        before its anchor, and no other block. Corrections read the tokens of the text.
        """
        rows, count = anchors.shape
        position = (anchors[..., None] + jnp.arange(size)).reshape(rows, -1)
        text, fed = tokens.shape[1], position.shape[1]
        text_angles = self.compute_angles(jnp.broadcast_to(jnp.arange(text), tokens.shape))
        block_angles, fused_states = self.compute_angles(position), self.fuse_states(features)
        table = self.compute_distance_bias(text + size) if self.config.cross else None
        masks = list_layer_masks(self.config)
        biases = {
            mask: make_text_bias(BlocksBias(anchors, table, text, size, *mask), fed, text + fed)
            for mask in masks
        }
        pending = jnp.take_along_axis(tokens, anchors, axis=1)
        x = self.embed_block(pending, size).reshape(rows, fed, -1)
        for layer, mask in zip(self.layers, masks, strict=True):
            q, *block_pair = layer.project_block(x, block_angles, size)
            pairs = zip(layer.project_text(fused_states, text_angles), block_pair, strict=True)
            keys, values = (jnp.concatenate(pair, axis=2) for pair in pairs)
            x = layer.run_block(x, (q, keys, values), biases[mask], cross, size)
        x = x.reshape(rows, count, size, -1)[:, :, self.config.skipped_places :]
        normed = self.final_norm(x)
        return self._correct_blocks(self.read_out(normed), normed, tokens, anchors, all_tokens)

    def _correct_blocks(
        self,
        base: jax.Array,
        normed: jax.Array,
        tokens: jax.Array,
        anchors: jax.Array,
        all_tokens: bool,
    ) -> BlockLogits:
        """Corrects the logits [B, A, K, U] by the text's own tokens."""
        correction = self.config.correction
        if correction is None:
            return BlockLogits(base, base, None)
        place = jnp.arange(base.shape[2])
        at = (anchors[..., None] + place).reshape(len(tokens), -1)
        before = jnp.take_along_axis(tokens, at, axis=1, mode="clip").reshape(base.shape[:3])
        embedded = self.embed(before)
        if not correction.state_size:
            state = jnp.zeros((*before.shape, 0), normed.dtype)
            given = base, normed, before, embedded, state, place
            logits, _, confidence = self.corrector(*given, all_tokens)
            return BlockLogits(logits, base, confidence)
        state, steps = jnp.zeros((*anchors.shape, correction.state_size), normed.dtype), []
        for k in range(base.shape[2]):
            logits, state, confidence = self.corrector(
                base[:, :, k], normed[:, :, k], before[:, :, k], embedded[:, :, k], state, k
            )
            steps.append((logits, confidence))
        logits, confidences = zip(*steps, strict=True)
        confidence = None if confidences[0] is None else jnp.stack(confidences, axis=2)
        return BlockLogits(jnp.stack(logits, axis=2), base, confidence)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """One block, behind states of zeros: what initialisation needs to see."""
        anchors = jnp.zeros_like(tokens[:, :1])
        inputs = self.make_zero_inputs(*tokens.shape)
        return self.compute_block_logits(tokens, *inputs, anchors, 2).logits


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

    def compute_block_logits(
        self,
        params: Params,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        anchors: jax.Array,
        size: int,
        all_tokens: bool = False,
    ) -> BlockLogits:
        """`DFlashModule.compute_block_logits`, for training."""
        given = tokens, features, cross, anchors, size, all_tokens
        return call(self.module, "compute_block_logits", params, *given)

    def absorb(self, params: Params, cache: Cache, features: jax.Array, slot: jax.Array) -> Cache:
        own = apply(self.module, "write_features", params, features, cache.data["own"], slot)
        return cache.replace(data={**cache.data, "own": own})

    def read(self, params: Params, cache: Cache, tokens: jax.Array, features: jax.Array) -> Cache:
        return self.absorb(params, cache, features, jnp.zeros_like(cache.length))

    def draft_block(
        self, params: Params, cache: Cache, tokens: jax.Array
    ) -> tuple[jax.Array, jax.Array, Cache]:
        """Logits [B, K, U] and states [B, K, D] of a block [B, N], not corrected; the cache.

        Of the tokens the first, pending one is read.
        """
        logits, states, own = apply(
            self.module, "draft_block", params, tokens, cache.data, cache.length
        )
        return logits, states, cache.replace(data={**cache.data, "own": own})

    def correct(
        self,
        params: Params,
        cache: Cache,
        logits: jax.Array,
        hidden: jax.Array,
        tokens: jax.Array,
        state: jax.Array,
        place: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Logits [..., V] of a place after tokens [...] before it, its state and confidence."""
        given = logits, hidden, tokens, state, place, cache.data["places"]
        return apply(self.module, "correct", params, *given)

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
