"""Making one model out of the layers of another."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.models.base import Params
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
