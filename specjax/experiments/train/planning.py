"""`--dry_run` of a training run: models and memory from shapes alone."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.experiments.config.fields import DTYPES, generation_arguments
from specjax.experiments.config.footprint import abstract_params
from specjax.experiments.config.memory import FLOAT, check_bytes
from specjax.experiments.config.placement import whole_words
from specjax.experiments.train.model import choose_tokenizer, make_model_shape
from specjax.experiments.train.objective import make_objective
from specjax.experiments.train.with_input import get_decoder
from specjax.hf.descriptions import describe
from specjax.hf.tensors import flat_shapes
from specjax.models.attention import count_scores
from specjax.models.base import LanguageModel, Where
from specjax.models.shapes import get_parameter_shapes
from specjax.parallel.mesh import AXES, DATA, MODEL, axis_sizes
from specjax.parallel.sharding import full_spec, parameter_spec
from specjax.runtime.errors import UserError
from specjax.training.objective import Objective
from specjax.training.optimizer import Optimizer
from specjax.training.surgery import take_layers_shape


def show_plan(config: ConfigDict) -> dict[str, int]:
    """Prints and returns bytes on each device: parameters, gradients, optimizer, target."""
    mesh = mesh_sizes(config)
    target = target_of(config)
    model = planned_model(config, target)
    memory = sizes(config, model, target)
    count = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(model, jnp.float32)))
    steps, rows = config.optimizer.steps, config.batch_size
    print(f"mesh: data {mesh[DATA]} x model {mesh[MODEL]} = {math.prod(mesh.values())} device(s)")
    print(f"model: {count:,} parameters, {model.info.depth} decoder layers")
    print(f"{config.objective.name} for {steps:,} steps of {rows} rows ({steps * rows:,} rows)")
    for name, size in memory.items():
        print(f"{name:12}{size / GIB:10.3f} GiB per device")
    print(f"{'total':12}{sum(memory.values()) / GIB:10.3f} GiB, activations not counted")
    for name, planned in {"model": model, "target": target}.items():
        if planned:
            lines = whole_words(name, planned, mesh[MODEL]), whole_over_data(config, name, planned)
            print(*filter(None, lines), sep="\n", end="\n" if any(lines) else "")
    return memory


def whole_over_data(config: ConfigDict, name: str, model: LanguageModel) -> str:
    """Describes matrices that cannot be fully sharded; empty if there are none."""
    mesh = mesh_sizes(config)
    if not config.fully_sharded or mesh[DATA] == 1:
        return ""
    shapes = flat_shapes(abstract_params(model, jnp.float32))
    matrices = {where: shape for where, shape in shapes.items() if len(shape) > 1}
    whole = [
        where
        for where, shape in matrices.items()
        if DATA not in full_spec(where, shape, model, mesh[DATA], mesh[MODEL])
    ]
    if not whole:
        return ""
    return (
        f"{name}: {len(whole)} of {len(matrices)} matrices, as {'.'.join(whole[0])}, have no whole"
        f" axis that config.mesh.data {mesh[DATA]} divides, and are whole over it"
    )


def check_memory(config: ConfigDict) -> None:
    """Refuses a run that certainly does not fit on a device.

    Activations count only logits and one head's scores of the shortest rows.

    Raises:
      UserError: with the required and the available bytes.
    """
    target = target_of(config)
    model = planned_model(config, target, vocabulary(config, target))
    needed = sizes(config, model, target)
    rows = config.batch_size // config.accumulate // mesh_sizes(config)[DATA]
    needed["logits"] = rows * config.bucket * model.info.vocab_size * FLOAT
    needed["attention"] = rows * count_scores(config.bucket, False) * FLOAT
    fields = ("batch_size", "accumulate", "bucket")
    check_bytes(needed, ", ".join(f"config.{field} {config[field]:,}" for field in fields))


def vocabulary(config: ConfigDict, target: LanguageModel | None) -> int:
    """Vocabulary size of a model from a shape alone; 0 if something else sets it."""
    settings = config.model
    if target or settings.checkpoint or "vocab_size" in settings.shape:
        return 0
    return len(choose_tokenizer(settings, None, None))


def mesh_sizes(config: ConfigDict) -> dict[str, int]:
    """Devices by axis."""
    return dict(zip(AXES, axis_sizes(config.mesh.to_dict()), strict=True))


def target_of(config: ConfigDict) -> LanguageModel | None:
    """The shape of the target, if there is one."""
    if not config.target:
        return None
    target = describe(config.target, DTYPES[config.dtype], **generation_arguments(config))
    return get_decoder(target)


def sizes(config: ConfigDict, model: LanguageModel, target: LanguageModel | None) -> dict[str, int]:
    """Bytes on each device by part."""
    objective = make_objective(config)
    tree = abstract_params(model, jnp.float32)
    params = on_device(config, model, tree)
    params *= not objective.on_target  # counted as the target
    heads = on_device(config, model, heads_tree(objective, model), of_heads=True)
    frozen = {name: tree[name] for name in config.model.frozen if name in tree}
    trained = heads + (params - on_device(config, model, frozen)) * objective.trains_model
    teacher = abstract_params(target, DTYPES[config.dtype]) if target else None
    return {
        "parameters": params + heads,
        "gradients": trained,
        "optimizer": optimizer_bytes(config, objective, model, trained),
        "target": on_device(config, target, teacher),
    }


def planned_model(
    config: ConfigDict, target: LanguageModel | None, width: int = 0
) -> LanguageModel:
    """The trained model from shapes alone; `width` ids unless something else sets them.

    Raises:
      UserError: when the vocabulary size is unknown.
    """
    settings = config.model
    if make_objective(config).on_target and target is not None:
        return target
    if settings.checkpoint:
        options = generation_arguments(config)
        whole = describe(settings.checkpoint, jnp.float32, **options)
        taken = take_layers_shape(whole, settings.decoder_layers, settings.encoder_layers)
        return get_decoder(taken)
    width = target.info.vocab_size if target else width
    if not width and "vocab_size" not in settings.shape:
        raise UserError(
            "config.model.shape has no vocab_size, and there is no target to take it from"
        )
    return make_model_shape(settings, width, {}, target)


def on_device(
    config: ConfigDict, model: LanguageModel | None, tree: Any, *, of_heads: bool = False
) -> int:
    """Bytes on each device of a model's parameters or of heads on it; 0 for None."""
    if model is None:
        return 0
    mesh = mesh_sizes(config)
    data, ways = mesh[DATA], mesh[MODEL]

    def spec(where: Where, shape: tuple[int, ...]) -> PartitionSpec:
        if config.fully_sharded:
            return full_spec(where, shape, model, data, ways)
        return PartitionSpec() if of_heads else parameter_spec(where, model, ways)

    def size(path: Any, leaf: Any) -> int:
        axes = spec(tuple(key.key for key in path), leaf.shape)
        return leaf.size // math.prod(mesh[a] for a in axes if a) * leaf.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree_util.tree_map_with_path(size, tree)))


def heads_tree(objective: Objective, model: LanguageModel) -> Any:
    """Shapes of the parallel heads, None when none are trained."""
    heads = objective.heads_on(model)
    return None if heads is None else get_parameter_shapes(heads)


def bytes_of(tree: Any) -> int:
    """Bytes of an abstract tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def optimizer_bytes(
    config: ConfigDict, objective: Objective, model: LanguageModel, trained: int
) -> int:
    """Bytes of the optimizer's state on each device, sharded like the parameters."""
    tree = {"heads": heads_tree(objective, model)}
    if objective.trains_model:
        tree["model"] = abstract_params(model, jnp.float32)
    state = jax.eval_shape(Optimizer(**config.optimizer.to_dict()).make().init, tree)
    return int(bytes_of(state) * trained / bytes_of(tree))
