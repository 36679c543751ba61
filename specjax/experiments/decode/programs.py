"""Traces a decode of a config ahead of time, for devices that may be absent."""

from __future__ import annotations

import jax
from jax.sharding import Mesh

from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.experiments.config.placement import get_ways
from specjax.experiments.decode.planning import Plan, abstract_decode
from specjax.parallel.sharding import Layout, parameter_shardings


def lowered_decode(plan: Plan, name: str, mesh: Mesh) -> tuple[Decoder, jax.stages.Lowered]:
    """The decoder of a planned strategy, and its traced decode of the longest prompts.

    On a mesh of one device nothing is sharded, as in a run.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    models = plan.pair.members
    ways = tuple((model, get_ways(plan.config, model)) for model in models)
    layout = Layout(mesh, ways) if mesh.size > 1 else None
    decoder, (params, *rest) = abstract_decode(plan, plan.strategies[name], layout)
    # JAX places trees that belong to no model, as tables, as in a run.
    for model in decoder.used:
        tree, over = params[model], dict(ways)[model]
        where = parameter_shardings(mesh, models[model].model, tree=tree, ways=over)
        params[model] = jax.tree.map(lambda leaf, there: leaf.update(sharding=there), tree, where)
    return decoder, generate.lower(decoder, params, *rest)
