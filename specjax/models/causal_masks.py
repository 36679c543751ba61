"""Attention masks of each layer of a decoder-only model: windows, chunks, ALiBi's slopes.

Each has the fed tokens as queries and what a cache holds as keys. Recurrent layers have the paths
of a tree's tokens instead (`recurrent_layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from specjax.models.attention import (
    AnyBias,
    CausalBias,
    make_cache_bias,
    make_call_bias,
    make_text_bias,
    make_tree_bias,
)
from specjax.models.causal_config import CausalConfig
from specjax.models.layers import Tree
from specjax.models.positions import RelativeBiasOf, compute_tree_bias, make_slope_table
from specjax.models.windows import make_chunk_mask, make_layer_masks, make_step_mask


def make_text_masks(config: CausalConfig, begin: jax.Array, size: int) -> list[Any]:
    """Builds the masks of whole texts of `size` tokens; `begin` [B] is 0."""

    def make(_: Any, window: int) -> AnyBias:
        bias = CausalBias(begin, window, chunked=config.chunked_windows)
        if config.slopes:
            bias = RelativeBiasOf(make_slope_table(config.slopes, size), begin[:1])
        return make_text_bias(bias, size, size)

    return _make_masks(config, [None] * config.num_layers, make)


def make_prompt_masks(
    config: CausalConfig, own: Sequence[Any], start: jax.Array, fed: int, length: jax.Array
) -> list[Any]:
    """Builds the masks of a chunk of `fed` prompt tokens from `start` [B] over caches `own`."""

    def make(cache: Any, window: int) -> AnyBias:
        if config.slopes:
            return make_cache_bias(_make_relative(config, cache, start), start, fed)
        return make_chunk_mask(cache, window, start, fed, length, config.chunked_windows)

    return _make_masks(config, own, make)


def make_step_masks(
    config: CausalConfig, own: Sequence[Any], start: jax.Array, fed: int, tree: Tree | None
) -> list[Any]:
    """Builds the masks of `fed` tokens at slots from `start` [B], written to caches `own`."""

    def make(cache: Any, window: int) -> AnyBias:
        if not config.slopes:
            return make_step_mask(cache, window, start, fed, tree, config.chunked_windows)
        bias = _make_relative(config, cache, start)
        if tree is not None:
            return make_tree_bias(compute_tree_bias(bias.table, tree, start), start)
        return make_call_bias(bias, start, fed, cache[0].shape[2])

    return _make_masks(config, own, make, None if tree is None else tree[1])


def _make_relative(config: CausalConfig, cache: Any, start: jax.Array) -> RelativeBiasOf:
    return RelativeBiasOf(make_slope_table(config.slopes, cache[0].shape[2]), start)


def _make_masks(
    config: CausalConfig,
    own: Sequence[Any],
    make: Callable[[Any, int], AnyBias],
    paths: jax.Array | None = None,
) -> list[Any]:
    """Builds each layer's mask from its cache and window; recurrent layers have `paths`."""
    attending = config.attending_layers
    windows = [config.layer_windows[i] for i in attending]
    caches = [own[config.cache_layers[i]] for i in attending]
    masks: list[Any] = [paths] * config.num_layers
    for i, made in zip(attending, make_layer_masks(windows, caches, make), strict=True):
        masks[i] = made
    return masks
