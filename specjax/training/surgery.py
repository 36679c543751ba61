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
    return deepened(model, decoder_layers), grown


def deepened(model: T5, decoder_layers: int) -> T5:
    """The shape of the model that `deepen` makes."""
    return T5(dataclasses.replace(model.config, num_decoder_layers=decoder_layers))


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

    Every layer of a side is kept when none is named.

    Raises:
      UserError: when there is no such layer.
    """
    made = layers_taken(model, decoder, encoder)
    decoder = decoder or range(model.depth)
    if isinstance(model, Causal):
        return made, _with_layers(params, {"layers": decoder})
    encoder = encoder or range(model.config.num_layers)
    return made, _with_layers(params, {"decoder": decoder, "encoder": encoder})


def layers_taken(
    model: LanguageModel, decoder: Sequence[int], encoder: Sequence[int] = ()
) -> LanguageModel:
    """The shape of the model that `take` makes."""
    causal = isinstance(model, Causal)
    counts = {"decoder": model.depth, "encoder": 0 if causal else model.config.num_layers}
    for side, layers in (("decoder", decoder), ("encoder", encoder)):
        for layer in layers:
            if not 0 <= layer < counts[side]:
                raise UserError(
                    f"model.{side}_layers names layer {layer}; there are 0 to {counts[side] - 1}"
                )
    decoder = decoder or range(counts["decoder"])
    config = {"num_layers": len(decoder)}
    if not causal:
        depth = len(encoder) or counts["encoder"]
        config = {"num_decoder_layers": len(decoder), "num_layers": depth}
    else:
        for name in ("windows", "ropes", "mixtures"):
            of_layers = getattr(model.config, name)
            config[name] = tuple(of_layers[layer] for layer in decoder) if of_layers else ()
    return type(model)(dataclasses.replace(model.config, **config))


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
