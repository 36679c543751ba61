"""Initialization of a feature drafter from its target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import Ids
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel, Params
from specjax.models.on_target import FeatureDrafter
from specjax.models.t5 import T5Config
from specjax.models.target_shapes import complete_params
from specjax.runtime.errors import UserError
from specjax.training.objective import Objective


def check_fits(config: ConfigDict, objective: Objective, model: LanguageModel) -> None:
    """Refuses a feature drafter with unsupported fields or another objective.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_objective(config, objective, model)
    for field, value in (
        ("dropout", config.dropout),
        ("remat", config.remat),
        ("sequences.drafter", config.sequences.drafter),
    ):
        if isinstance(model, FeatureDrafter) and value:
            raise UserError(
                f"config.{field} is {value!r}; it must be {type(value)()!r} for a feature drafter,"
                " which is trained without"
            )


def check_objective(config: ConfigDict, objective: Objective, model: LanguageModel) -> None:
    """Refuses feature drafters with other objectives, and other models with its objective.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    allowed, kind, trained = "another one", "no feature drafter", None
    if isinstance(model, FeatureDrafter):
        kind = f"a feature drafter, of family {model.config.family!r}"
        allowed, trained = objective_for(model), type(model)
        if not allowed:
            raise UserError(f"config.model is {kind}; no objective trains it")
    if objective.trains is not trained:
        raise UserError(
            f"config.objective.name is {config.objective.name!r}; it must be {allowed}, as the"
            f" model is {kind}"
        )


def objective_for(model: FeatureDrafter) -> str:
    """Names of the objectives that train such a drafter."""
    trained = {name: entry.cls.trains for name, entry in OBJECTIVES.items()}
    return " or ".join(repr(name) for name, kind in trained.items() if kind is type(model))


def adopt_target(start: LoadedModel, target: LoadedModel, outputs: Iterable[Ids]) -> LoadedModel:
    """Initializes a feature drafter with the target's embedding and output layers.

    Its vocabulary is the most frequent ids in the training `outputs`. Other models are returned
    unchanged.
    """
    model = start.model
    if not isinstance(model, FeatureDrafter):
        return start
    ids = frequent_tokens(outputs, model)
    params = {**start.params, "embedding": own_copy(target.params["embedding"])}
    params["ids"] = jnp.asarray(ids)
    layer, basis, read_out = read_from(target, ids, model.config)
    params = take_from_target(model, {**params, **read_out}, target)
    return dataclasses.replace(start, params=model.initialize_params(params, layer, basis))


def take_from_target(model: FeatureDrafter, params: Params, target: LoadedModel) -> Params:
    """A drafter's parameters with copies of those that its checkpoint leaves to the target.

    Raises:
      UserError: when the target does not fit.
    """
    try:
        whole = complete_params(model.config, params, target.params)
    except ValueError as error:
        raise UserError(f"config.model: {error}") from None
    left = {name: one for name, one in whole.items() if one is not params.get(name)}
    kept = {name: one for name, one in whole.items() if name not in left}
    if model.config.tied_head:
        kept.pop("head", None)
    return kept | jax.tree.map(_own_copy_of_floats, left)


def _own_copy_of_floats(x: jax.Array) -> jax.Array:
    return own_copy(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


def read_from(
    target: LoadedModel, ids: np.ndarray, config: Any
) -> tuple[Params, jax.Array | None, Params]:
    """Initial parameters with which a drafter of this shape predicts ids like the target.

    For the target's width these are its last layer, final norm and output matrix. A narrower
    drafter projects the states onto the first singular directions [E, D] of the output matrix, and
    uses that matrix in these directions. A wider one gets nothing.
    """
    width = config.d_model
    table, norm = output_layer(target.model, target.params)
    table = table[:, ids].astype(jnp.float32)
    if width > len(table):
        return {}, None, {}
    if width == len(table):
        own = {"head": {"kernel": table}, "final_norm": {"scale": own_copy(norm)}}
        return last_layer(target, getattr(config, "unit_offset", False)), jnp.eye(width), own
    scaled_table = table * norm[:, None]
    _, rising = jnp.linalg.eigh(scaled_table @ scaled_table.T)
    basis = rising[:, ::-1][:, :width]
    return {}, basis, {"head": {"kernel": basis.T @ scaled_table}}


def own_copy(x: jax.Array) -> jax.Array:
    """Copies parameters in float32, because training donates its buffers."""
    return jnp.array(x, jnp.float32, copy=True)


def last_layer(target: LoadedModel, unit_offset: bool) -> Params:
    """The target's last decoder layer, with self-attention under the drafter's name.

    `unit_offset`: whether the drafter's norms keep what their scales exceed 1 by.
    """
    number, config = target.model.info.depth - 1, target.model.config
    if target.model.info.start_token is None:
        layer = target.params[f"layers_{number}"]
        if config.unit_offset == unit_offset:
            return layer
        norms = (name for name in layer if name.endswith("_norm"))
        return {**layer, **{name: {"scale": norm_scale(config, layer[name])} for name in norms}}
    if not isinstance(config, T5Config):
        return {}  # its parts differ from those of T5's layers
    layer = target.params[f"decoder_{number}"]
    return {**layer, "attention": layer["self_attention"]}


def frequent_tokens(outputs: Iterable[Ids], model: FeatureDrafter) -> np.ndarray:
    """The most frequent ids [U] int32 in texts, ascending; includes the EOS ids."""
    counts = np.zeros(model.info.vocab_size, np.int64)
    for row in outputs:
        counts += np.bincount(row, minlength=model.info.vocab_size)
    counts[list(model.info.eos)] = counts.max() + 1
    order = np.argsort(-counts, kind="stable")
    return np.sort(order[: model.config.draft_vocab]).astype(np.int32)


def norm_scale(config: Any, norm: Params) -> jax.Array:
    """The scale that a norm multiplies by, for any parameterization."""
    less_one = getattr(config, "unit_offset", False)
    return 1.0 + norm["scale"].astype(jnp.float32) if less_one else norm["scale"]


def output_layer(model: LanguageModel, params: Params) -> tuple[jnp.ndarray, jnp.ndarray]:
    """A model's output matrix [D, V], as it is applied to normed states, and that norm's scale.

    Models with post-norm layers have no final norm; their scale is 1.
    """
    config = model.config
    table = params["embedding"].T if config.tied else params["head"]["kernel"]
    if isinstance(config, T5Config) and config.scale_outputs:
        table = table * config.d_model**-0.5
    table = table * getattr(config, "logit_scale", 1.0)
    norm = params.get("final_norm" if model.info.start_token is None else "decoder_norm")
    return table, jnp.ones(len(table)) if norm is None else norm_scale(config, norm)
