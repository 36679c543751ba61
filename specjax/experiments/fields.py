"""Checking the fields of a config at the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.data.tasks import TASKS
from specjax.errors import UserError
from specjax.evaluation.quality import METRICS
from specjax.parallel.mesh import axis_sizes

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}

_AT_LEAST = {
    "batch_size": 1,
    "max_new_tokens": 1,
    "max_prompt_tokens": 1,
    "bucket": 1,
    "repeats": 1,
    "examples": 0,
    "ngram_examples": 0,
    "seed": 0,
}

_CHOICES = {"dtype": tuple(DTYPES), "metric": ("", *METRICS), "task": ("", *TASKS)}


def check_fields(config: ConfigDict) -> None:
    """Refuses values that no decode experiment could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_integers(config, _AT_LEAST)
    check_choices(config, _CHOICES)
    if not config.strategies:
        raise UserError("config.strategies is empty; it must name at least one strategy")
    data, _ = axis_sizes(config.mesh.to_dict())
    if config.batch_size % data:
        raise UserError(
            f"config.batch_size is {config.batch_size}; it must be a multiple of config.mesh.data,"
            f" {data}"
        )


def check_integers(config: ConfigDict, least: Mapping[str, int]) -> None:
    """Refuses fields that are not integers of at least so much.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    for field, bound in least.items():
        value = config[field]
        if not isinstance(value, int) or isinstance(value, bool) or value < bound:
            raise UserError(
                f"config.{field} is {value!r}; it must be an integer of at least {bound}"
            )


def check_choices(config: ConfigDict, choices: Mapping[str, Sequence[str]]) -> None:
    """Refuses fields that are none of the allowed values.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    for field, allowed in choices.items():
        if config[field] not in allowed:
            raise UserError(
                f"config.{field} is {config[field]!r}; it must be one of {', '.join(allowed)}"
            )


def model_names(config: ConfigDict) -> dict[str, str]:
    """Directory or hub id of every model, the target first.

    Raises:
      UserError: when the target is missing or a drafter has its name.
    """
    if not config.target:
        raise UserError("config.target is empty; it must be a model directory or hub id")
    found = {"target": config.target}
    drafters = {"drafter": config.drafter} if config.drafter else {}
    for name, checkpoint in {**drafters, **config.drafters.to_dict()}.items():
        if name in found or not checkpoint:
            raise UserError(
                f"config.drafters.{name} is {checkpoint!r}; drafters need names of their own and a"
                " model directory or hub id"
            )
        found[name] = checkpoint
    return found


def checkpoint_dtype(config: ConfigDict) -> Any:
    """The dtype of weights and arithmetic."""
    return DTYPES[config.dtype]
