"""Making one model out of the layers of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.models.causal import Causal
from specjax.models.t5 import T5


def deepen(model: T5, params: Params, decoder_layers: int) -> tuple[T5, Params]:
    """A T5 with more decoder layers that computes the same function.

    New layers are copies of the old ones, in turn, whose output projections are zero: training
    goes on where it was, at the depth of the new model.

    Raises:
      ValueError: when `decoder_layers` is less than the model has.
    """
    have = model.config.num_decoder_layers
    if decoder_layers < have:
        raise ValueError(f"decoder_layers is {decoder_layers}; the model already has {have}")
    grown = dict(params)
    for index in range(have, decoder_layers):
        grown[f"decoder_{index}"] = _silent(params[f"decoder_{index % have}"])
    config = dataclasses.replace(model.config, num_decoder_layers=decoder_layers)
    return T5(config), grown


def _silent(layer: Params) -> Params:
    """A layer that adds nothing to the residual stream."""

    def leaf(path: tuple[jax.tree_util.DictKey, ...], value: jax.Array) -> jax.Array:
        outputs = {"o", "down"}
        return jnp.zeros_like(value) if outputs & {key.key for key in path} else jnp.array(value)

    return jax.tree_util.tree_map_with_path(leaf, layer)


def take(
    model: LanguageModel, params: Params, decoder: Sequence[int], encoder: Sequence[int] = ()
) -> tuple[LanguageModel, Params]:
    """A smaller model made of some layers (counted from 0) of another, and its embeddings.

    Every `encoder` layer is kept when none is named.

    Raises:
      UserError: when there is no such layer.
    """
    counts = {"decoder": decoder_layers(model), "encoder": getattr(model.config, "num_layers", 0)}
    for side, layers in (("decoder", decoder), ("encoder", encoder)):
        for layer in layers:
            if not 0 <= layer < counts[side]:
                raise UserError(
                    f"model.{side}_layers names layer {layer}; there are 0 to {counts[side] - 1}"
                )
    if isinstance(model, Causal):
        kept, config = {"layers": decoder}, {"num_layers": len(decoder)}
        if model.config.windows:
            config["windows"] = tuple(model.config.windows[layer] for layer in decoder)
    else:
        encoder = encoder or range(model.config.num_layers)
        kept = {"decoder": decoder, "encoder": encoder}
        config = {"num_decoder_layers": len(decoder), "num_layers": len(encoder)}
    made = type(model)(dataclasses.replace(model.config, **config))
    return made, _with_layers(params, kept)


def decoder_layers(model: LanguageModel) -> int:
    """How many layers the decoder has."""
    return getattr(model.config, "num_decoder_layers", model.config.num_layers)


def _with_layers(params: Params, kept: Mapping[str, Sequence[int]]) -> Params:
    """The tree with the stacks of `kept` cut down to the layers named."""
    found = {
        name: value
        for name, value in params.items()
        if name.rpartition("_")[0] not in kept or not name.rpartition("_")[2].isdigit()
    }
    for stack, layers in kept.items():
        for place, layer in enumerate(layers):
            found[f"{stack}_{place}"] = params[f"{stack}_{layer}"]
    return jax.tree.map(jnp.array, found)
