"""A parallel drafter on the target's features: EAGLE-3 whose tokens are drafted in one causal call.

P-EAGLE (arXiv 2602.01469, docs/methods/p_eagle.md). The last token of the text is read beside the
target's state before it, as in EAGLE-3. The slots after it have neither token nor state: they read
the embedding of a mask and a learned vector in place of the target's states. Slot s gives the token
s + 1 places after the last one; it sees the text and the slots before it.

Dimension letters as in `models.on_target`; M tokens and masks are read together in training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float32, Int

from specjax.models.attention import make_text_bias
from specjax.models.base import Params
from specjax.models.caches import KeysValues
from specjax.models.eagle import Eagle, EagleCausalConfig, EagleModule, EagleT5Config
from specjax.models.layers import MASKED, call
from specjax.models.on_target import Cross
from specjax.models.target_shapes import OnTarget

MASK = -1
"""Marks a fed token as a mask; equal to no token of any vocabulary."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masks(OnTarget):
    """What a drafter's shape says of its masks."""

    mask_token: int | None = None  # whose embedding masks have; None: they have one of their own


@dataclasses.dataclass(frozen=True, kw_only=True)
class PEagleT5Config(Masks, EagleT5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PEagleCausalConfig(Masks, EagleCausalConfig):
    """Shape of a drafter for a decoder-only target."""


class PEagleModule(EagleModule):
    """Parameters and layers; `PEagle` wraps them into the model contract."""

    def setup(self) -> None:
        super().setup()
        c, normal = self.config, nn.initializers.normal(1.0)
        if self.mask_token is None:
            self.mask = self.param("mask", normal, (c.embedding_size,), jnp.float32)
        shape = 1, 1, c.read * c.target_width
        self.mask_hidden = self.param("mask_hidden", normal, shape, jnp.float32)

    @property
    def mask_token(self) -> int | None:
        """Whose embedding masks have."""
        assert isinstance(self.config, Masks)
        return self.config.mask_token

    def embed_inputs(
        self, tokens: Int[Array, "B T"], before: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B T E"], Float[Array, "B T D"]]:
        """The first layer's inputs; those of a `MASK` are learned."""
        is_mask, dtype = (tokens == MASK)[..., None], self.config.dtype
        if self.mask_token is None:
            embedding = self.mask.astype(dtype)
        else:
            embedding = self.embed(jnp.int32(self.mask_token))
        embedded = jnp.where(is_mask, embedding, self.embed(jnp.maximum(tokens, 0)))
        state = self.fuse_states(self.mask_hidden.astype(dtype))
        return embedded, jnp.where(is_mask, state, before)

    def compute_rollouts(
        self,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T FE"],
        cross: Cross | None,
        anchors: Sequence[Int[Array, "B _"]],
    ) -> list[Float32[Array, "B _ U"]]:
        """Computes logits of slot 0 at all tokens [B, T], and of slots 1, 2, ... after `anchors`.

        `anchors[s - 1]` [B, N] are positions of the tokens that slot s belongs to, each of them
        among those of slot s - 1. `features` [B, T, F * E] are the target's states at the tokens.
        """
        rows, size = tokens.shape
        counts = [size, *(each.shape[1] for each in anchors)]
        anchor = jnp.concatenate([jnp.broadcast_to(jnp.arange(size), tokens.shape), *anchors], 1)
        slot, masks = np.repeat(np.arange(len(counts)), counts), sum(counts) - size
        fed = jnp.pad(tokens, ((0, 0), (0, masks)), constant_values=MASK)
        before = jnp.pad(self.fuse_states(features), ((0, 0), (1, masks), (0, 0)))
        before = jnp.concatenate([before[:, :size], before[:, size + 1 :]], axis=1)
        table = self.compute_distance_bias(size + len(counts)) if self.config.cross else None
        whole = RolloutsBias(anchor, jnp.asarray(slot), table, self.config.reads_first)
        bias = make_text_bias(whole, len(slot), len(slot))

        def attend(number: int, made: KeysValues) -> Any:
            return made, bias

        inputs = self.embed_inputs(fed, before)
        states = self.run_layers(*inputs, anchor + slot, attend, cross)
        ends = np.cumsum(counts)[:-1]
        return jnp.split(self.compute_draft_logits(states), ends, axis=1)

    def __call__(self, tokens: Int[Array, "B T"]) -> list[Float32[Array, "B _ U"]]:
        """One mask, on states of zeros: what initialisation needs to see."""
        anchors = [jnp.zeros_like(tokens[:, :1])]
        return self.compute_rollouts(tokens, *self.make_zero_inputs(*tokens.shape), anchors)


class RolloutsBias(struct.PyTreeNode):
    """A slot sees the text up to its anchor, and the slots after the same anchor up to itself."""

    anchor: Int[Array, "B M"]
    slot: Int[Array, " M"]  # 0: a token of the text
    table: (
        Float[Array, "H W"] | None
    )  # bias by distance, as of `compute_bias_rows`; None: there is none
    reads_first: bool = struct.field(pytree_node=False)

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        (anchor, slot), (of, number) = self._at(query, queries), self._at(key, keys)
        anchor, of = anchor[:, :, None], of[:, None]
        slot = slot[:, None]
        text = (number == 0) & (of <= anchor)
        distance = of + number - anchor - slot
        if not self.reads_first:
            text &= (of > 0) | (distance == 0)
        visible = text | ((number > 0) & (of == anchor) & (number <= slot))
        bias = jnp.where(visible, 0.0, MASKED).astype(jnp.float32)[:, None]
        if self.table is None:
            return bias
        last = self.table.shape[1] - 1
        row = jnp.clip(self.table.shape[1] // 2 - 1 + distance, 0, last)
        return bias + jnp.moveaxis(self.table[:, row], 0, 1)

    def _at(self, first: Int[Array, ""] | int, count: int) -> tuple[jax.Array, jax.Array]:
        at = first + jnp.arange(count)
        anchor = jnp.take(self.anchor, at, axis=1, mode="clip")
        return anchor, jnp.take(self.slot, at, mode="clip")


@dataclasses.dataclass(frozen=True)
class PEagle(Eagle):
    """The drafter under the model contract; of the tokens that a call feeds some are `MASK`.

    Masks leave keys and values in the cache that are not of the text: its pointer must go back to
    the first of them.
    """

    config: PEagleT5Config | PEagleCausalConfig

    @property
    def module(self) -> PEagleModule:
        return PEagleModule(self.config)

    def initialize_params(
        self, params: Params, layer: Params, basis: Float[Array, "E D"] | None
    ) -> Params:
        """The same, with a mask as large as the embeddings of tokens are, where it is no token."""
        params = super().initialize_params(params, layer, basis)
        if "mask" not in params:
            return params
        size = jnp.sqrt(jnp.mean(jnp.square(params["embedding"])))
        return {**params, "mask": params["mask"] * size}

    def compute_rollouts(
        self,
        params: Params,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T FE"],
        cross: Cross | None,
        anchors: Sequence[Int[Array, "B _"]],
    ) -> list[Any]:
        """`PEagleModule.compute_rollouts`, for training."""
        return call(self.module, "compute_rollouts", params, tokens, features, cross, anchors)
