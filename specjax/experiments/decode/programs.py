"""Traces a decode of a config ahead of time, for devices that may be absent."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from specjax.batching.slots import count_together
from specjax.contracts.rows import ROUNDS
from specjax.decoding.filling import Rows, advance_until, fill, make_slots, take
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.experiments.config.placement import get_ways
from specjax.experiments.decode.planning import Plan, abstract_decode
from specjax.parallel.sharding import Layout, parameter_shardings


def lowered_decode(plan: Plan, name: str, mesh: Mesh) -> tuple[Decoder, jax.stages.Lowered]:
    """The decoder of a planned strategy, and its traced decode of the longest prompts.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    decoder, arguments = _place(plan, name, mesh)
    return decoder, generate.lower(decoder, *arguments)


def lowered_filling(
    plan: Plan, name: str, mesh: Mesh
) -> tuple[Decoder, dict[str, jax.stages.Lowered]]:
    """The decoder, and the traced programs of slots that are refilled with the longest prompts.

    By name: `fill` reads a few prompts, `rounds` decodes, and `take` copies rows that have ended.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    slots = plan.config.batch_size
    decoder, (params, *_) = _place(plan, name, mesh)
    together = count_together(decoder.row_ways, slots)
    _, (_, *few) = _place(_with_batch_size(plan, together), name, mesh)
    rows, number = Rows(*few), jax.ShapeDtypeStruct((), jnp.int32)
    begin = make_slots.lower(decoder, params, rows, slots)
    # Only the compiled program says where its outputs lie.
    where = begin.compile().output_shardings
    state = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        begin.out_info,
        where,
    )
    given, places = (decoder, params, state), jax.ShapeDtypeStruct((together,), jnp.int32)
    return decoder, {
        "fill": fill.lower(*given, rows, places),
        ROUNDS: advance_until.lower(*given, number, number),
        "take": take.lower(decoder, state, places),
    }


def _with_batch_size(plan: Plan, size: int) -> Plan:
    config = plan.config.copy_and_resolve_references()
    config.batch_size = size
    return dataclasses.replace(plan, config=config)


def _place(plan: Plan, name: str, mesh: Mesh) -> tuple[Decoder, tuple[Any, ...]]:
    """A strategy's decoder, and the shapes of its arguments where they lie on the mesh.

    On a mesh of one device nothing is sharded, as in a run.
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
    return decoder, (params, *rest)
