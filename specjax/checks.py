"""Checks of decode arguments, shared by configs and the Python API."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from specjax.contracts import fields
from specjax.models.quantized_weights import HALF, WeightFormat
from specjax.runtime.errors import UserError

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}

TOKENS = 2**20
"""Most tokens of a prompt, an output or a bucket: more than any model reads."""


def seed(*, help: str) -> Any:
    """The field of a PRNG seed."""
    return fields.integer(0, least=0, most=2**32 - 1, help=help)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Fields that configs and the Python API share."""

    batch_size: int = fields.integer(1, most=2**20, help="texts that are decoded together")
    max_new_tokens: int = fields.integer(64, most=TOKENS, help="most tokens of an output")
    max_prompt_tokens: int = fields.integer(512, most=TOKENS, help="longer prompts are refused")
    bucket: int = fields.integer(
        0,
        least=0,
        most=TOKENS,
        help="prompts are padded to multiples of it, and each width is compiled; 0: to the few"
        " widths by which padding is at most a tenth of all positions",
    )
    seed: int = seed(help="seed of random draws")


def check_integer(where: str, value: Any, least: int) -> None:
    """Refuses anything but an integer of at least `least`, and absurdly large ones.

    Raises:
      UserError: naming the field (`where`, a dotted path), the value and what is allowed.
    """
    check_value(fields.integer(least=least, help="").metadata[fields.KEY], where, value)


def check_integers(**values: Any) -> None:
    """Refuses arguments that are outside of the bounds of `Sizes`, by its names.

    Raises:
      UserError: naming the argument, the value and what is allowed.
    """
    known = fields.get_config_fields(Sizes)
    for name, value in values.items():
        check_value(known[name], name, value)


def check_value(field: fields.ConfigField, where: str, value: Any) -> Any:
    """The value parsed by `ConfigField.value`.

    Raises:
      UserError: naming the field (`where`), the value and what is allowed.
    """
    try:
        return field.value(where, value)
    except ValueError as error:
        raise UserError(str(error)) from None


def parse_dtype(value: Any) -> Any:
    """The dtype of `DTYPES` with a given name.

    Raises:
      UserError: when it is none of them.
    """
    try:
        return DTYPES[value if isinstance(value, str) else np.dtype(value).name]
    except (KeyError, TypeError):
        raise UserError(f"dtype is {value!r}; it must be one of {', '.join(DTYPES)}") from None


def parse_weights(
    value: Any, where: str = "weights", mesh: Mesh | None = None
) -> WeightFormat | None:
    """Parses `bfloat16`, `int8`, `int4` or `int4:64`; None for the empty text.

    Raises:
      UserError: naming the field (`where`), the value and what is allowed.
    """
    try:
        weights = None if value == "" else WeightFormat.parse(value)
    except ValueError as error:
        raise UserError(f"{where} is {value!r}; {error}") from None
    if mesh is not None and weights and weights.kind == HALF:
        raise UserError(
            f"{where} is {value!r}, which needs one device; with a mesh give dtype 'bfloat16'"
        )
    return weights


def token_ids(where: str, prompt: Any, vocabulary: int) -> list[int]:
    """Checks a prompt of token ids.

    Raises:
      UserError: when it is no list of integers from 0 to below `vocabulary`.
    """
    try:
        ids = np.asarray(prompt)
    except ValueError:  # rows of several lengths
        ids = np.asarray(None)
    if ids.ndim != 1:
        array = isinstance(prompt, np.ndarray | jnp.ndarray)
        shown = f"an array of shape {prompt.shape}" if array else repr(prompt)
        shown = shown if len(shown) < 80 else f"{shown[:80]} ..."
        raise UserError(f"{where} is {shown}; it must be a text or a list of token ids")
    for token in ids.tolist():
        if not fields.is_integer(token) or not 0 <= token < vocabulary:
            raise UserError(
                f"{where} has the token {fields.format_value(token)}; token ids must be integers "
                "from 0 to"
                f" {vocabulary - 1}"
            )
    return ids.tolist()


def check_dictionary(name: str, value: Any) -> None:
    """Refuses an argument that is neither a dictionary nor None.

    Raises:
      UserError: naming it.
    """
    if not isinstance(value, Mapping | None):
        raise UserError(f"{name} is {value!r}; it must be a dictionary by name")
