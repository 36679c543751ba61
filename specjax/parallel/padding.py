"""Pads a model with zero heads, so that its heads divide by the devices that share it.

A head whose queries, keys and values are zero mixes zeros, and the zero rows of the output
projection add nothing. So the model computes the same function, and its attention can be split.
Each device then has a part of the heads; heads that do not divide are replicated.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from specjax.models.bart import BartConfig
from specjax.models.base import LanguageModel, Params
from specjax.models.quantized_weights import is_quantized
from specjax.models.shapes import get_parameter_shapes
from specjax.parallel.mesh import axes_over
from specjax.parallel.sharding import STACKS, parameter_shardings
from specjax.runtime.errors import UserError

NO_SMALL = "pad_heads is True; with int8 or int4 weights it must be False where heads do not divide"


def pad_model(model: LanguageModel, ways: int) -> LanguageModel:
    """The model padded to a number of heads that `ways` divides; unchanged without a gain.

    Query heads come in groups, one for each key and value head, and whole groups are added. Nothing
    is added if a device would not have fewer heads, or if the query heads divide already; nor to
    BART models, whose head width is the model width over the number of heads; nor if a norm is over
    all heads together, because zeros would change its mean; nor if layers differ in their heads.
    """
    config = model.config
    unlike = getattr(config, "wide_qk_norm", False) or getattr(config, "heads", ())
    if isinstance(config, BartConfig) or unlike:
        return model
    stacks = {name: getattr(config, name) for name in STACKS if hasattr(config, name)}
    if stacks:
        changes = {name: _wide(stack, ways) for name, stack in stacks.items()}
        wide = dataclasses.replace(config, **changes)
    else:
        wide = _wide(config, ways)
    return model if wide == config else dataclasses.replace(model, config=wide)


def _wide(shape: Any, ways: int) -> Any:
    groups = getattr(shape, "num_kv_heads", shape.num_heads)
    per_device = -(-groups // ways)
    if shape.num_heads % ways == 0 or per_device == groups:
        return shape
    changes = {"num_heads": shape.num_heads // groups * per_device * ways}
    if hasattr(shape, "num_kv_heads"):
        changes["num_kv_heads"] = per_device * ways
    return dataclasses.replace(shape, **changes)


def pad_params(params: Params, wide: LanguageModel) -> Params:
    """Pads parameters to the shapes of `wide`, the padded model, at the ends of their axes.

    Raises:
      UserError: when some weights are quantized, whose groups cannot be extended.
    """
    if any(is_quantized(leaf) for leaf in jax.tree.leaves(params, is_leaf=is_quantized)):
        raise UserError(NO_SMALL)
    shapes = get_parameter_shapes(wide)

    def pad(x: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.pad(x, [(0, new - old) for old, new in zip(x.shape, shape.shape, strict=True)])

    return jax.tree.map(pad, params, shapes)


def pad_heads(
    model: LanguageModel, params: Params, mesh: Mesh, ways: int
) -> tuple[LanguageModel, Params]:
    """The padded model and its parameters on the mesh, over `ways` (0: all) of its devices."""
    over = [mesh.shape[axis] for axis in axes_over(mesh, ways)]
    wide = pad_model(model, math.prod(over))
    if wide is model:
        return model, params
    where = parameter_shardings(mesh, wide, ways=ways)
    return wide, jax.jit(pad_params, static_argnums=1, out_shardings=where)(params, wide)
