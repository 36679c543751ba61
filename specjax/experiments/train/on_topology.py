"""`--dry_run` of a training run on a TPU topology: its step compiled and audited."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.accelerators.program import audit_program, measure_memory
from specjax.accelerators.topology import describe_topology
from specjax.data.pipeline import pad_batch
from specjax.experiments.config.fields import DTYPES
from specjax.experiments.config.footprint import abstract_params
from specjax.experiments.config.topology import memory_refusal, show_topology
from specjax.experiments.train.model import to_training_form
from specjax.experiments.train.objective import make_frozen, make_objective
from specjax.experiments.train.planning import heads_tree, planned_model, target_of
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel
from specjax.parallel.mesh import DATA
from specjax.parallel.sharding import parameter_shardings
from specjax.training.objective import Objective
from specjax.training.step import Setup, TrainState, train_step

SetupOf = Callable[[ConfigDict, LoadedModel, Objective], Setup]
"""The training step of a config (`job.make_setup`)."""


def plan_on_topology(config: ConfigDict, make_setup: SetupOf) -> dict[str, Any]:
    """Compiles the step of the widest batch for `config.topology`; returns plan.json's content.

    Raises:
      UserError: when topology or mesh cannot be used.
    """
    topology = describe_topology(config.topology)
    mesh = topology.mesh(config.mesh.to_dict())
    show_topology(topology)
    print("compiling the step", flush=True)
    entry = step_entry(config, make_setup, mesh, topology.chip.memory)
    print(words(entry))
    return {
        "topology": topology.name,
        "devices": len(topology.devices),
        "chip": dataclasses.asdict(topology.chip),
        "config": config.to_dict(),
        "step": entry,
    }


def step_entry(config: ConfigDict, make_setup: SetupOf, mesh: Mesh, most: int) -> dict[str, Any]:
    """The compiler's report of the step; a device has `most` bytes."""
    lowered = lowered_step(config, make_setup, mesh)
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return memory_refusal(error)
    memory, audit = measure_memory(compiled), audit_program(compiled.as_text() or "", rounds=False)
    return {
        "memory": dataclasses.asdict(memory),
        "fits": memory.total <= most,
        "compile_seconds": time.perf_counter() - start,
        "copied": sum(copy.size for copy in audit.copies),
        "copied_weights": sum(copy.size for copy in audit.copies if copy.source),
        "collectives": audit.collectives,
        "float32_products": audit.wide_products,
        "accessed": (compiled.cost_analysis() or {})["bytes accessed"],
    }


def lowered_step(config: ConfigDict, make_setup: SetupOf, mesh: Mesh) -> jax.stages.Lowered:
    """The step of a run on a mesh, traced for its widest batch."""
    objective = make_objective(config)
    target = target_of(config)
    model, sharded = to_training_form(config, planned_model(config, target)), config.fully_sharded
    teacher = shard_shapes(target, DTYPES[config.dtype], mesh, sharded) if target else None
    start = teacher if objective.on_target else None
    start = start or shard_shapes(model, jax.numpy.float32, mesh, sharded)
    setup = make_setup(config, start, objective)
    frozen = make_frozen(objective, start, teacher)
    state = abstract_state(setup, trained_shapes(objective, start, mesh, sharded), mesh)
    return train_step.lower(setup, state, frozen, widest_batch(config, start.model, mesh))


def shard_shapes(model: LanguageModel, dtype: Any, mesh: Mesh, fully_sharded: bool) -> LoadedModel:
    """A model with shapes for parameters, split over the mesh."""
    shapes = abstract_params(model, dtype)
    params = attach_shardings(shapes, parameter_shardings(mesh, model, fully_sharded))
    return LoadedModel(model, params, mesh=mesh)


def attach_shardings(shapes: Any, shardings: Any) -> Any:
    """Shapes with their shardings."""
    return jax.tree.map(lambda leaf, where: leaf.update(sharding=where), shapes, shardings)


def trained_shapes(
    objective: Objective, start: LoadedModel, mesh: Mesh, fully_sharded: bool
) -> Any:
    """Shapes of the trained tree, as of `subject.make_subject`."""
    heads = heads_tree(objective, start.model)
    if heads is None:
        return start.params
    if fully_sharded:
        heads = attach_shardings(heads, parameter_shardings(mesh, start.model, True, heads))
    else:
        heads = on_all(heads, mesh)
    return {"trunk": start.params, "heads": heads} if objective.trains_model else heads


def on_all(tree: Any, mesh: Mesh) -> Any:
    """Shapes replicated on every device."""
    where = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: leaf.update(sharding=where), tree)


def abstract_state(setup: Setup, params: Any, mesh: Mesh) -> TrainState:
    """Shapes of the initial state; optimizer state is sharded like its parameters."""
    state = jax.eval_shape(setup.start, params)

    def as_parameter(leaf: Any, parameter: Any) -> Any:
        # Factored moments have other shapes and are replicated on every device.
        alike = leaf.shape == parameter.shape
        return leaf.update(sharding=parameter.sharding) if alike else on_all(leaf, mesh)

    optimizer = optax.tree_utils.tree_map_params(
        setup.optimizer.make(),
        as_parameter,
        state.optimizer,
        params,
        transform_non_params=lambda leaf: on_all(leaf, mesh),
    )
    return TrainState(params, optimizer, on_all(state.step, mesh))


def widest_batch(config: ConfigDict, model: LanguageModel, mesh: Mesh) -> Any:
    """Shapes of a batch of the longest prompts and outputs, its rows split over the mesh."""
    row = [0] * config.max_prompt_tokens, [0] * config.max_output_tokens
    rows = [row] * config.batch_size
    batch = pad_batch(
        rows, config.bucket, model.info.start_token, model.info.pad, config.learn_prompt
    )
    where = NamedSharding(mesh, PartitionSpec(DATA))
    return {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)
        for name, array in batch.items()
    }


def words(entry: dict[str, Any]) -> str:
    """Formats the entry as lines."""
    if "refused" in entry:
        return f"it does not fit: {entry['refused']}"
    memory, total = entry["memory"], ", ".join(f"{n} {k}" for k, n in entry["collectives"].items())
    return "\n".join(
        [
            f"per device: arguments {memory['arguments'] / GIB:.2f} GiB, of which"
            f" {memory['aliased'] / GIB:.2f} are donated, temporaries"
            f" {memory['temporaries'] / GIB:.2f} GiB; fits: {'yes' if entry['fits'] else 'no'}",
            f"compiled in {entry['compile_seconds']:.0f} s; copied {entry['copied'] / 1e6:.1f} MB,"
            f" weights {entry['copied_weights'] / 1e6:.1f} MB of it; collectives {total or 'none'}",
        ]
    )
