"""Shapes in annotations of specjax, checked at run time by beartype: in tests only."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray

CHECKED = ("specjax.contracts", "specjax.models", "specjax.sampling", "specjax.verification")
"""Modules and packages whose functions are checked."""


def checker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds checks of the annotations that have shapes to a function.

    NumPy's arrays are checked as JAX's, whose functions take both. Not to initializers: JAX also
    makes pytrees of placeholders, of shardings and of batched arrays. Nor of other annotations,
    which pyright has checked.
    """
    hints = function.__annotations__
    function.__annotations__ = {
        name: accept_numpy(hint) for name, hint in hints.items() if has_shape(hint)
    }
    is_checked = function.__name__ != "__init__" and function.__annotations__
    return beartype(function) if is_checked else function


def has_shape(hint: Any) -> bool:
    """Whether a type, or one within it, is an array with a shape."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(has_shape(part) for part in get_args(hint))


def accept_numpy(hint: Any) -> Any:
    """The type with NumPy's arrays of the same shape wherever it has JAX's."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        kinds = jax.Array | np.ndarray if hint.array_type is jax.Array else hint.array_type
        return hint.dtype[kinds, hint.dim_str]
    if not has_shape(hint):
        return hint
    parts = tuple(map(accept_numpy, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, parts)
    return get_origin(hint)[parts]
