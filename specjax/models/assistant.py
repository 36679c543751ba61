"""A drafter without a cache of its own: its layers read keys and values of its target's layers.

Gemma 4 assistants (Google 2026, docs/methods/eagle.md), and drafters of this kind for other targets
(`models.assistant_modules` has the layers). A decoder-only target may have layers of several kinds:
each layer reads the cache of the last one of its own kind; of a target with an encoder all read the
last layer's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from specjax.models.assistant_modules import (
    AssistantCausalConfig,
    AssistantConfig,
    AssistantT5Config,
    CausalAssistantModule,
    Memory,
    T5AssistantModule,
    list_sources,
    make_empty_memory,
)
from specjax.models.base import Cache, LanguageModel, Params, PromptReading, Prompts
from specjax.models.caches import KeysValues
from specjax.models.causal_config import CausalConfig
from specjax.models.encoder_decoder import EncoderDecoder
from specjax.models.layers import call
from specjax.models.on_target import Cross
from specjax.models.state_drafter import StateDrafter
from specjax.models.target_shapes import adapt_shape


@dataclasses.dataclass(frozen=True)
class Assistant(StateDrafter):
    """The drafter under the model contract.

    While it drafts its cache holds the target's keys and values (`borrow`); otherwise one slot of
    zeros stands for them, and for others' measurements.
    """

    config: AssistantConfig

    @property
    def module(self) -> CausalAssistantModule | T5AssistantModule:
        if isinstance(self.config, AssistantT5Config):
            return T5AssistantModule(self.config)
        return CausalAssistantModule(self.config)

    @property
    def frozen_names(self) -> tuple[str, ...]:
        """As of any feature drafter, and how the ids are grouped."""
        grouping = ("order",) if getattr(self.config, "centroids", 0) else ()
        return (*super().frozen_names, *grouping)

    def adapt_to(self, target: LanguageModel) -> Self:
        """This drafter with the layers of the target whose caches it reads.

        Raises:
          ValueError: when this target does not have them.
        """
        if self.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"it was made for a target of {self.config.vocab_size} ids; this one has"
                f" {target.config.vocab_size}"
            )
        sources = find_sources(self.config, target)
        own: dict[str, Any] = {"sources": sources}
        if self.config.normed:
            own |= {"features": (target.info.depth,), "target_eps": target.config.eps}
        shape = adapt_shape(dataclasses.replace(self.config, **own), target)
        return dataclasses.replace(self, config=shape)

    def initialize_params(
        self, params: Params, layer: Params, basis: Float[Array, "E D"] | None
    ) -> Params:
        """With the output layer that it gets as its own output embedding."""
        if "head" not in params:
            return params
        others = {name: one for name, one in params.items() if name != "head"}
        return others | {"output_embedding": jnp.array(params["head"]["kernel"].T, jnp.float32)}

    def unroll_draft(
        self,
        params: Params,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T E"],
        memory: Memory,
        cross: Cross | None,
        steps: int,
    ) -> list[Float32[Array, "B T U"]]:
        """`AssistantModule.unroll_draft`, for training."""
        given = tokens, features, memory, cross, steps
        return call(self.module, "unroll_draft", params, *given)

    def select_memory(self, caches: Sequence[Any]) -> Memory:
        """The keys and values that its layers read, of those of all layers of the target."""
        return [caches[source] for source in list_sources(self.config)]

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


def find_sources(config: AssistantConfig, target: LanguageModel) -> tuple[int, ...]:
    """The target layer whose cache each layer reads: the last of its kind that has one.

    Raises:
      ValueError: when there is none, or its heads or window are others.
    """
    theirs = target.config
    if isinstance(config, AssistantCausalConfig) and isinstance(theirs, CausalConfig):
        return _find_causal_sources(config, theirs)
    if isinstance(config, AssistantT5Config) and isinstance(target, EncoderDecoder):
        return _find_last_layer(config, target)
    is_causal = isinstance(config, AssistantCausalConfig)
    kind = "a decoder-only target" if is_causal else "a target with an encoder"
    raise ValueError(
        f"it reads the caches of {kind}; this one, of family {theirs.family!r}, is none"
    )


def _find_last_layer(config: AssistantT5Config, target: EncoderDecoder) -> tuple[int, ...]:
    """The last layer that keeps all keys, which have the heads of the cross-attention's."""
    ours, theirs = (config.num_heads, config.d_kv), target.cross_heads
    kept = [layer for layer, window in enumerate(target.windows) if not window]
    if ours != theirs or not kept:
        raise ValueError(
            f"it reads a layer of {ours[0]} key heads of width {ours[1]} without a window; this"
            f" target, of family {target.config.family!r}, has {theirs[0]} of width {theirs[1]} and"
            f" {len(kept)} such layers"
        )
    return (kept[-1],) * config.layers


def _find_causal_sources(config: AssistantCausalConfig, target: CausalConfig) -> tuple[int, ...]:
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
