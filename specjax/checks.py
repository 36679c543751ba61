"""What a decode can use: one place, and one sentence, for configs and the Python API."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from specjax.errors import UserError
from specjax.models.small_weights import HALF, SmallWeights

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}

TOKENS = 2**20
"""Most tokens of a prompt, an output or a bucket: more than any model reads."""

AT_LEAST = {
    "batch_size": 1,
    "max_new_tokens": 1,
    "max_prompt_tokens": 1,
    "bucket": 0,
    "seed": 0,
}
"""Of what configs and the Python API both ask for."""

_AT_MOST = {
    **dict.fromkeys(("bucket", "max_new_tokens", "max_output_tokens", "max_prompt_tokens"), TOKENS),
    "batch_size": 2**20,
    **dict.fromkeys(("capacity", "corpus_tokens"), 2**25),
    "epochs": 10**6,
    "profile_rounds": 10**4,
    "repeats": 10**4,
    "seed": 2**32 - 1,  # what a key is made of
    "seeds": 10**4,
    "steps": 10**8,
    "vocab_size": 10**7,
}
"""By the last part of a field's path; others are bounded by what 32 bits hold."""

_MOST = 2**31 - 1


def check_integer(where: str, value: Any, lowest: int) -> None:
    """Refuses what is no integer of at least `lowest`, and more than anything could use.

    Raises:
      UserError: naming the field (`where`, a dotted path), the value and what is allowed.
    """
    most = _AT_MOST.get(where.rpartition(".")[2], _MOST)
    if not is_integer(value) or value < lowest:
        raise UserError(f"{where} is {_shown(value)}; it must be an integer of at least {lowest}")
    if value > most:
        shown = _shown(value, ",")
        raise UserError(f"{where} is {shown}; it must be an integer from {lowest} to {most:,}")


def check_integers(**values: Any) -> None:
    """Refuses arguments, by their names, that are outside of `AT_LEAST` and what is of use.

    Raises:
      UserError: naming the argument, the value and what is allowed.
    """
    for name, value in values.items():
        check_integer(name, value, AT_LEAST[name])


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, which True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def checked_dtype(value: Any) -> Any:
    """The one of `DTYPES` that a name or a dtype stands for.

    Raises:
      UserError: when it is none of them.
    """
    try:
        return DTYPES[value if isinstance(value, str) else np.dtype(value).name]
    except (KeyError, TypeError):
        raise UserError(f"dtype is {value!r}; it must be one of {', '.join(DTYPES)}") from None


def checked_weights(
    value: Any, where: str = "weights", mesh: Mesh | None = None
) -> SmallWeights | None:
    """What `bfloat16`, `int8`, `int4` or `int4:64` stands for; None for the empty text.

    Raises:
      UserError: naming the field (`where`), the value and what is allowed.
    """
    try:
        weights = None if value == "" else SmallWeights.spelled(value)
    except ValueError as error:
        raise UserError(f"{where} is {value!r}; {error}") from None
    if mesh is not None and weights and weights.kind == HALF:
        raise UserError(
            f"{where} is {value!r}, which lies on one device; with a mesh give dtype 'bfloat16'"
        )
    return weights


def token_ids(where: str, prompt: Any, vocabulary: int) -> list[int]:
    """The ids of a prompt that is given as such.

    Raises:
      UserError: when it is no list of integers from 0 to below `vocabulary`.
    """
    try:
        ids = np.asarray(prompt)
    except ValueError:  # rows of several lengths
        ids = np.asarray(None)
    if ids.ndim != 1:
        shown = repr(prompt)
        shown = shown if len(shown) < 80 else f"{shown[:80]} ..."
        raise UserError(f"{where} is {shown}; it must be a text or a list of token ids")
    for token in ids.tolist():
        if not is_integer(token) or not 0 <= token < vocabulary:
            raise UserError(
                f"{where} has the token {_shown(token)}; token ids must be integers from 0 to"
                f" {vocabulary - 1}"
            )
    return ids.tolist()


def _shown(value: Any, form: str = "") -> str:
    """A value in a sentence; Python does not print integers of thousands of digits."""
    if not is_integer(value):
        return repr(value)
    bits = int(value).bit_length()
    return format(value, form) if bits < 128 else f"an integer of {bits} bits"


def check_dictionary(name: str, value: Any) -> None:
    """Refuses an argument that is neither a dictionary nor None.

    Raises:
      UserError: naming it.
    """
    if not isinstance(value, Mapping | None):
        raise UserError(f"{name} is {value!r}; it must be a dictionary by name")
