"""Checking the fields of a decode config at the door."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.errors import UserError
from specjax.evaluation.quality import METRICS

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}

_AT_LEAST = {
    "batch_size": 1,
    "max_new_tokens": 1,
    "max_prompt_tokens": 1,
    "bucket": 1,
    "repeats": 1,
    "examples": 0,
    "seed": 0,
}

_CHOICES = {"dtype": tuple(DTYPES), "metric": (*METRICS, "none")}


def check_fields(config: ConfigDict) -> None:
    """Refuses values that no run could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    for field, least in _AT_LEAST.items():
        value = config[field]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(
                f"config.{field} is {value!r}; it must be an integer of at least {least}"
            )
    for field, allowed in _CHOICES.items():
        if config[field] not in allowed:
            raise UserError(
                f"config.{field} is {config[field]!r}; it must be one of {', '.join(allowed)}"
            )
    if not config.strategies:
        raise UserError("config.strategies is empty; it must name at least one strategy")


def checkpoint_dtype(config: ConfigDict) -> Any:
    """The dtype of weights and arithmetic."""
    return DTYPES[config.dtype]
