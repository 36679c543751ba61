"""`--dry_run` of a training run: models and memory from shapes alone."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.checkpoints.huggingface import describe
from specjax.checkpoints.tensors import flat_shapes
from specjax.errors import UserError
from specjax.experiments.fields import DTYPES
from specjax.experiments.plan import GIB, abstract_params
from specjax.experiments.train_model import shape_of
from specjax.experiments.train_subject import heads_of
from specjax.models.base import LanguageModel
from specjax.parallel.mesh import AXES, MODEL, axis_sizes
from specjax.parallel.sharding import parameter_spec
from specjax.training.optimizer import Optimizer
from specjax.training.surgery import layers_taken


def show_plan(config: ConfigDict) -> dict[str, int]:
    """Prints and returns bytes on each device: parameters, gradients, optimiser, target."""
    mesh = dict(zip(AXES, axis_sizes(config.mesh.to_dict()), strict=True))
    ignored = {"ignore_generation_config": config.ignore_generation_config}
    target = describe(config.target, DTYPES[config.dtype], **ignored) if config.target else None
    model = planned_model(config, target)
    ways = mesh[MODEL]
    params = on_device(model, jnp.float32, ways)
    heads = heads_tree(config, model)
    trained = bytes_of(heads) + params * (heads is None or config.heads.trunk == "trained")
    found = {
        "parameters": params + bytes_of(heads),
        "gradients": trained,
        "optimizer": optimizer_bytes(config, model, heads, trained),
        "target": on_device(target, DTYPES[config.dtype], ways) if target else 0,
    }
    count = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(model, jnp.float32)))
    steps, rows = config.optimizer.steps, config.batch_size
    print(f"mesh: data {mesh['data']} x model {ways} = {math.prod(mesh.values())} device(s)")
    print(f"model: {count:,} parameters, {model.depth} decoder layers")
    print(f"{config.objective.name} for {steps:,} steps of {rows} rows ({steps * rows:,} rows)")
    for name, size in found.items():
        print(f"{name:12}{size / GIB:10.3f} GiB per device")
    print(f"{'total':12}{sum(found.values()) / GIB:10.3f} GiB, activations not counted")
    return found


def planned_model(config: ConfigDict, target: LanguageModel | None) -> LanguageModel:
    """The model that would be trained, from shapes alone."""
    settings = config.model
    if settings.checkpoint:
        ignored = {"ignore_generation_config": config.ignore_generation_config}
        whole = describe(settings.checkpoint, jnp.float32, **ignored)
        return layers_taken(whole, settings.decoder_layers, settings.encoder_layers)
    if target is None and "vocab_size" not in settings.shape:
        raise UserError(
            "config.model.shape has no vocab_size, and there is no target to take it from"
        )
    return shape_of(settings, target.vocab_size if target else 0, {})


def on_device(model: LanguageModel, dtype: Any, ways: int) -> int:
    """Bytes of a model's parameters on each device."""
    sizes = {w: math.prod(s) for w, s in flat_shapes(abstract_params(model, dtype)).items()}
    split = (
        size // (ways if MODEL in parameter_spec(where, model, ways) else 1)
        for where, size in sizes.items()
    )
    return sum(split) * jnp.dtype(dtype).itemsize


def heads_tree(config: ConfigDict, model: LanguageModel) -> Any:
    """Shapes of the parallel heads, None when none are trained."""
    if config.objective.name != "blockwise":
        return None
    return jax.eval_shape(heads_of(config, model).init, jax.random.key(0))


def bytes_of(tree: Any) -> int:
    """Bytes of an abstract tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def optimizer_bytes(config: ConfigDict, model: LanguageModel, heads: Any, trained: int) -> int:
    """Bytes of the optimiser's state on each device; it is split as the parameters are."""
    tree = {"heads": heads, "model": abstract_params(model, jnp.float32)}
    if heads is not None and config.heads.trunk != "trained":
        tree = {"heads": heads}
    state = jax.eval_shape(Optimizer(**config.optimizer.to_dict()).make().init, tree)
    return int(bytes_of(state) * trained / bytes_of(tree))
