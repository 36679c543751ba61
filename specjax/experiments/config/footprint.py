"""What a model takes on each device, worked out from shapes alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.checkpoints.tensors import flat_shapes
from specjax.experiments.config.fields import checkpoint_dtype
from specjax.models.base import LanguageModel
from specjax.models.shapes import parameter_shapes
from specjax.parallel.mesh import MODEL
from specjax.parallel.sharding import parameter_spec


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """What one model takes."""

    checkpoint: str
    parameters: int
    parameter_bytes: int  # on each device
    cache_bytes: int  # on each device, for one batch of the longest prompts and outputs


def plan_model(
    checkpoint: str,
    model: LanguageModel,
    config: ConfigDict,
    mesh: Mapping[str, int],
    capacity: int,
    ways: int,
    ahead: int | None,
) -> ModelPlan:
    """Parameters and bytes of one model that `ways` devices share.

    Of caches with room for `capacity` tokens behind a decoder-only model's prompt, written so far
    `ahead` as a decode does (`decoding.state.ahead_of`).
    """
    itemsize = np.dtype(checkpoint_dtype(config)).itemsize
    flat = flat_shapes(abstract_params(model, checkpoint_dtype(config)))
    sizes = {where: math.prod(shape) for where, shape in flat.items()}
    on_device = sum(
        size // (ways if MODEL in parameter_spec(where, model, ways) else 1)
        for where, size in sizes.items()
    )
    return ModelPlan(
        checkpoint,
        sum(sizes.values()),
        on_device * itemsize,
        cache_bytes(model, config, mesh["data"], ways, capacity, ahead),
    )


def cache_bytes(
    model: LanguageModel,
    config: ConfigDict,
    data: int,
    ways: int,
    capacity: int,
    ahead: int | None,
) -> int:
    """Bytes of a model's cache on each device."""
    if model.start_token is None:
        capacity += config.max_prompt_tokens

    def start(*read: Any) -> Any:
        return model.start(*read, capacity, ahead=ahead)[0].data

    params = abstract_params(model, checkpoint_dtype(config))
    cache = jax.eval_shape(start, params, *abstract_prompt(config))

    def on_device(leaf: jax.ShapeDtypeStruct) -> int:
        if leaf.ndim != 4:
            return leaf.size * leaf.dtype.itemsize
        parts = data * (ways if leaf.shape[1] % ways == 0 else 1)
        return leaf.size * leaf.dtype.itemsize // parts

    return sum(map(on_device, jax.tree.leaves(cache)))


def abstract_params(model: LanguageModel, dtype: Any) -> Any:
    """Shapes of a model's parameters in `dtype`; ids stay integers."""

    def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, dtype if floating else leaf.dtype)

    return jax.tree.map(one, parameter_shapes(model))


def abstract_prompt(config: ConfigDict) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Shapes of a batch of the longest prompts."""
    rows = (config.batch_size,)
    prompt = jax.ShapeDtypeStruct((*rows, config.max_prompt_tokens), jnp.int32)
    return prompt, jax.ShapeDtypeStruct(rows, jnp.int32)
