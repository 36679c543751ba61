"""Compiling a decode of a config ahead of time, for devices that this machine need not have."""

from __future__ import annotations

from collections.abc import Mapping

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.generation import NOTHING, Planned
from specjax.experiments.config.placement import ways_of
from specjax.experiments.decode.planning import abstract_decode
from specjax.experiments.decode.strategies import common_width
from specjax.models.base import LanguageModel
from specjax.parallel.sharding import Layout, parameter_shardings


def lowered_decode(
    config: ConfigDict,
    models: Mapping[str, LanguageModel],
    strategies: Mapping[str, Strategy],
    name: str,
    mesh: Mesh,
    planned: Planned = NOTHING,
) -> tuple[Decoder, jax.stages.Lowered]:
    """The decoder of one of the strategies, and its decode of the longest prompts, traced.

    On a mesh of one device nothing is split, as in a run.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    ways = tuple((model, ways_of(config, model)) for model in models)
    decoder, (params, *rest) = abstract_decode(
        models,
        strategies[name],
        config,
        min(model.vocab_size for model in models.values()),
        common_width(config, dict(strategies)),
        Layout(mesh, ways) if mesh.size > 1 else None,
        planned,
    )
    # Of trees that are no model's, as tables, JAX decides as it would in a run.
    for model in decoder.used:
        tree, over = params[model], dict(ways)[model]
        where = parameter_shardings(mesh, models[model], tree=tree, ways=over)
        params[model] = jax.tree.map(lambda leaf, there: leaf.update(sharding=there), tree, where)
    return decoder, generate.lower(decoder, params, *rest)
