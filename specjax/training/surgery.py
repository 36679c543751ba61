"""Builds a model from the layers of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.base import LanguageModel, Params
from specjax.models.causal import Causal
from specjax.models.on_target import FeatureDrafter
from specjax.models.t5 import T5
from specjax.models.t5gemma import Stack, T5Gemma
from specjax.models.vision import ImageToText
from specjax.runtime.errors import UserError

PER_LAYER = (
    "windows", "ropes", "heads", "d_ffs", "mixers", "mixtures", "recurrences", "sparsities",
)  # fmt: skip
"""Fields of a decoder-only shape with an entry for each layer, or none."""


def deepen(model: T5, params: Params, decoder_layers: int) -> tuple[T5, Params]:
    """A T5 with more decoder layers that computes the same function.

    New layers are copies of the old ones, in turn, with zero output projections. Training continues
    from the same function at the new depth.

    Raises:
      ValueError: when `decoder_layers` is less than the model has.
    """
    have = model.config.num_decoder_layers
    if decoder_layers < have:
        raise ValueError(f"decoder_layers is {decoder_layers}; the model already has {have}")
    grown = dict(params)
    for index in range(have, decoder_layers):
        grown[f"decoder_{index}"] = _silence_layer(params[f"decoder_{index % have}"])
    return deepen_shape(model, decoder_layers), grown


def deepen_shape(model: T5, decoder_layers: int) -> T5:
    """The shape of the model that `deepen` returns."""
    return T5(dataclasses.replace(model.config, num_decoder_layers=decoder_layers))


def _silence_layer(layer: Params) -> Params:
    """A layer that adds nothing to the residual stream."""

    def leaf(path: tuple[Any, ...], value: jax.Array) -> jax.Array:
        outputs = {"o", "down"}
        return jnp.zeros_like(value) if outputs & {key.key for key in path} else jnp.array(value)

    return jax.tree_util.tree_map_with_path(leaf, layer)


def take(
    model: LanguageModel, params: Params, decoder: Sequence[int], encoder: Sequence[int] = ()
) -> tuple[LanguageModel, Params]:
    """A smaller model made of some layers (counted from 0) of another, and its embeddings.

    Every layer of a side is kept if none is given.

    Raises:
      UserError: when there is no such layer.
    """
    made = take_layers_shape(model, decoder, encoder)
    decoder = decoder or range(model.info.depth)
    if isinstance(model, Causal):
        return made, _with_query_scales(model, _with_layers(params, {"layers": decoder}), decoder)
    encoder = encoder or range(_encoder_layers(model))
    return made, _with_layers(params, {"decoder": decoder, "encoder": encoder})


def take_layers_shape(
    model: LanguageModel, decoder: Sequence[int], encoder: Sequence[int] = ()
) -> LanguageModel:
    """The shape of the model that `take` returns; the model's own if no layer is given.

    Raises:
      UserError: when there is no such layer, or the model is one layer on a target's features.
    """
    if not decoder and not encoder:
        return model
    if isinstance(model, FeatureDrafter):
        raise UserError(
            f"model.decoder_layers is {tuple(decoder)} and model.encoder_layers {tuple(encoder)};"
            " both must be empty for a feature drafter, which is trained whole"
        )
    if encoder and isinstance(model, ImageToText):
        raise UserError(
            f"model.encoder_layers is {tuple(encoder)}; it must be empty for a model that reads"
            " images, whose encoder is taken whole"
        )
    causal = isinstance(model, Causal)
    if isinstance(model, Causal) and (model.config.shared_caches or model.config.layer_inputs):
        raise UserError(
            f"model.decoder_layers is {tuple(decoder)}; it must be empty for a model whose layers"
            " share caches or have embeddings of their own"
        )
    counts = {"decoder": model.info.depth, "encoder": 0 if causal else _encoder_layers(model)}
    for side, layers in (("decoder", decoder), ("encoder", encoder)):
        for layer in layers:
            if not 0 <= layer < counts[side]:
                raise UserError(
                    f"model.{side}_layers names layer {layer}; there are 0 to {counts[side] - 1}"
                )
    decoder = decoder or range(counts["decoder"])
    config: dict[str, object] = {"num_layers": len(decoder)}
    if isinstance(model, T5Gemma):
        encoder = encoder or range(counts["encoder"])
        config = {
            "encoder": _stack_with(model.config.encoder, encoder),
            "decoder": _stack_with(model.config.decoder, decoder),
        }
    elif not causal:
        depth = len(encoder) or model.config.num_layers
        config = {"num_decoder_layers": len(decoder), "num_layers": depth}
        kept = {"mixtures": decoder, "encoder_mixtures": encoder or range(depth)}
        for name, layers in kept.items():
            if of_layers := getattr(model.config, name, ()):
                config[name] = tuple(of_layers[layer] for layer in layers)
    else:
        for name in PER_LAYER:
            of_layers = getattr(model.config, name)
            config[name] = tuple(of_layers[layer] for layer in decoder) if of_layers else ()
        config["query_scales"] = model.config.query_scales[: len(decoder)]
    return dataclasses.replace(model, config=dataclasses.replace(model.config, **config))


def _with_query_scales(model: Causal, params: Params, layers: Sequence[int]) -> Params:
    """Parameters of `layers` of a model, with queries rescaled for their new positions.

    GPT-2's `scale_attn_by_inverse_layer_idx` scales attention by a layer's position.
    """
    scales, made = model.config.layer_query_scales, dict(params)
    for place, layer in enumerate(layers):
        if (ratio := scales[layer] / scales[place]) != 1.0:
            attention = dict(params[f"layers_{place}"]["attention"])
            attention["q"] = jax.tree.map(lambda x, by=ratio: x * by, attention["q"])
            made[f"layers_{place}"] = {**params[f"layers_{place}"], "attention": attention}
    return made


def _encoder_layers(model: LanguageModel) -> int:
    """Encoder layers that can be taken one by one."""
    if isinstance(model, ImageToText):
        return 0
    stack = model.config.encoder if isinstance(model, T5Gemma) else model.config
    return stack.num_layers


def _stack_with(stack: Stack, layers: Sequence[int]) -> Stack:
    """One side of a T5Gemma with only these layers."""
    windows = tuple(stack.windows[layer] for layer in layers)
    return dataclasses.replace(stack, num_layers=len(layers), windows=windows)


def _with_layers(params: Params, kept: Mapping[str, Sequence[int]]) -> Params:
    """The tree with the stacks of `kept` cut down to the layers named."""
    tree = {
        name: value
        for name, value in params.items()
        if name.rpartition("_")[0] not in kept or not name.rpartition("_")[2].isdigit()
    }
    for stack, layers in kept.items():
        for place, layer in enumerate(layers):
            tree[f"{stack}_{place}"] = params[f"{stack}_{layer}"]
    return jax.tree.map(jnp.array, tree)
