"""Compiling a decode of a config ahead of time, for devices that this machine need not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy
from specjax.experiments.decode.planning import abstract_decode, is_split
from specjax.experiments.decode.strategies import common_width
from specjax.models.base import LanguageModel
from specjax.parallel.sharding import Layout, parameter_shardings


def lowered_decode(
    config: ConfigDict,
    models: Mapping[str, LanguageModel],
    strategies: Mapping[str, Strategy],
    name: str,
    mesh: Mesh,
) -> tuple[Decoder, jax.stages.Lowered]:
    """The decoder of one of the strategies, and its decode of the longest prompts, traced.

    On a mesh of one device nothing is split, as in a run.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    split = tuple(model for model in models if is_split(config, model))
    decoder, (params, *rest) = abstract_decode(
        models,
        strategies[name],
        config,
        min(model.vocab_size for model in models.values()),
        common_width(config, dict(strategies)),
        Layout(mesh, split) if mesh.size > 1 else None,
    )
    # Of trees that are no model's, as tables, JAX decides as it would in a run.
    for model in decoder.used:
        params[model] = _placed(params[model], models[model], mesh, model in split)
    return decoder, generate.lower(decoder, params, *rest)


def _placed(params: Any, model: LanguageModel, mesh: Mesh, split: bool) -> Any:
    """Shapes of parameters with their places on the mesh."""
    if split:
        where = parameter_shardings(mesh, model)
        return jax.tree.map(lambda leaf, there: leaf.update(sharding=there), params, where)
    whole = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: leaf.update(sharding=whole), params)
