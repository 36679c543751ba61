"""Generation settings by Hugging Face's names, and the options that obey them.

Hugging Face reads their defaults from `generation_config.json`; so does `specjax.load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.core import fields
from specjax.core.adjustment import Adjustment
from specjax.core.context import Options
from specjax.core.fields import ConfigField, config_fields, hashable
from specjax.core.registry import ADJUSTMENTS
from specjax.errors import UserError
from specjax.models.base import LanguageModel


def schema() -> dict[str, ConfigField]:
    """The field of every setting."""
    return {name: config_fields(entry.cls)[name] for name, entry in ADJUSTMENTS.items()}


def checked(given: Mapping[str, Any], where: str = "generation.") -> dict[str, Any]:
    """The settings that are on, of values as `generation_config.json` has them; None is off.

    Raises:
      UserError: naming the field, its value and what is allowed.
    """
    known, on = schema(), {}
    for name, value in given.items():
        if name not in known:
            raise UserError(
                f"{where}{name} is no generation setting; it must be one of {', '.join(known)}"
            )
        value = hashable(value)
        if value is None or value == ADJUSTMENTS[name].cls.off:
            continue
        if known[name].kind is tuple and isinstance(value, int):
            value = (value,)  # transformers takes one token for a list of it
        try:
            on[name] = known[name].value(f"{where}{name}", value)
        except ValueError as error:
            raise UserError(str(error)) from None
    return on


def obeyed(options: Options, settings: Mapping[str, Any], model: LanguageModel) -> Options:
    """The options of a decode of `model` under settings.

    Raises:
      UserError: when one is unknown, or does not fit the model.
    """
    on = checked(settings)
    if "min_new_tokens" in on:
        on.pop("min_length", None)  # as transformers has it: the one replaces the other
    made: list[Adjustment] = []
    numbers: dict[str, jax.Array] = {}
    for name, value in on.items():
        part, traced = fields.build(ADJUSTMENTS[name].cls, {name: value})
        made.append(part)
        numbers |= {name: _traced(number) for name, number in traced.items()}
    made.sort(key=lambda one: one.order)
    try:
        bound = tuple(one.of_model(model, tuple(made)) for one in made)
    except ValueError as error:
        raise UserError(f"generation: {error}") from None
    return options.replace(adjustments=bound, numbers={**options.numbers, **numbers})


def _traced(number: float) -> jax.Array:
    return jnp.int32(number) if isinstance(number, int) else jnp.float32(number)
