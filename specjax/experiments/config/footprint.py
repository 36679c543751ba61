"""Memory of a model on each device, computed from shapes alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel, Params
from specjax.models.on_target import FeatureDrafter
from specjax.models.quantized_weights import (
    EXPERTS,
    WeightFormat,
    count_numbers,
    count_stored_bytes,
    is_quantized,
    quantize_params,
    to_key_path,
)
from specjax.models.shapes import get_parameter_shapes, make_placeholder_prompts, start_cache
from specjax.models.target_shapes import list_target_params
from specjax.parallel.mesh import MODEL
from specjax.parallel.sharding import split_spec
from specjax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """Parameters and bytes of one model."""

    checkpoint: str
    parameters: int
    parameter_bytes: int  # on each device
    cache_bytes: int  # on each device, for one batch of the longest prompts and outputs


def plan_model(
    entry: LoadedModel,
    config: ConfigDict,
    mesh: Mapping[str, int],
    capacity: int,
    ways: int,
    ahead: int | None,
    weights: WeightFormat | None = None,
    shares: bool = False,
) -> ModelPlan:
    """Parameters and bytes of one model that `ways` devices share.

    Caches have room for `capacity` tokens after a decoder-only model's prompt, and are written so
    far `ahead` as in a decode (`decoding.state.count_ahead`). A model that `shares` parameters with
    another one takes memory for its quantized weights only, and a feature drafter none for what its
    checkpoint leaves to the target.
    """
    model, params = entry.model, entry.params
    if isinstance(model, FeatureDrafter):
        left = list_target_params(model.config)
        params = {name: one for name, one in params.items() if name not in left}

    def on_device(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> int:
        where = to_key_path(path)
        if shares and not (weights and weights.applies_to(where, leaf.shape)):
            return 0
        split = MODEL in split_spec(where, leaf.shape, model, ways)
        return count_stored_bytes(leaf) // (ways if split else 1)

    return ModelPlan(
        entry.name,
        count_numbers(params),
        sum(jax.tree.leaves(jax.tree_util.tree_map_with_path(on_device, params))),
        cache_bytes(entry, config, mesh["data"], ways, capacity, ahead),
    )


def cache_bytes(
    entry: LoadedModel, config: ConfigDict, data: int, ways: int, capacity: int, ahead: int | None
) -> int:
    """Bytes of a model's cache on each device."""
    model = entry.model
    if model.info.start_token is None:
        capacity += config.max_prompt_tokens

    def start(params: Any, prompt: jax.Array, length: jax.Array) -> Any:
        return start_cache(model, params, prompt, length, capacity, ahead=ahead).data

    cache = jax.eval_shape(start, entry.params, *abstract_prompt(config, model))

    def on_device(leaf: jax.ShapeDtypeStruct) -> int:
        if leaf.ndim != 4:
            return leaf.size * leaf.dtype.itemsize
        parts = data * (ways if leaf.shape[1] % ways == 0 else 1)
        return leaf.size * leaf.dtype.itemsize // parts

    return sum(map(on_device, jax.tree.leaves(cache)))


def expert_itemsize(params: Params, dtype: Any) -> float:
    """Bytes of an expert weight with its share of the scales; of `dtype` without experts."""
    flat = jax.tree_util.tree_flatten_with_path(params, is_leaf=is_quantized)[0]
    experts = [leaf for path, leaf in flat if to_key_path(path)[-1] in EXPERTS]
    stored = sum(map(count_stored_bytes, jax.tree.leaves(experts)))
    return stored / count_numbers(experts) if experts else float(jnp.dtype(dtype).itemsize)


def abstract_params(model: LanguageModel, dtype: Any, weights: WeightFormat | None = None) -> Any:
    """Shapes of a model's parameters in `dtype` or quantized as `weights`; ids stay integers.

    Raises:
      UserError: when the model cannot have such weights.
    """

    def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, dtype if floating else leaf.dtype)

    params = jax.tree.map(one, get_parameter_shapes(model))
    if weights is None:
        return params
    try:
        return jax.eval_shape(functools.partial(quantize_params, weights=weights), params)
    except ValueError as error:
        raise UserError(str(error)) from None


def abstract_prompt(
    config: ConfigDict, model: LanguageModel
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Shapes of a batch of the longest prompts that a model reads."""
    rows, given = config.batch_size, model.info.input
    longest = given.count if given else config.max_prompt_tokens
    prompt = jax.eval_shape(lambda: make_placeholder_prompts(given, rows, longest))
    return prompt, jax.ShapeDtypeStruct((rows,), jnp.int32)
