"""Shapes in annotations of specjax, checked at run time by beartype: in tests only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray

CHECKED = ("specjax.contracts", "specjax.models", "specjax.sampling", "specjax.verification")
"""Modules and packages whose functions are checked."""


def checker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds checks of the annotations that have shapes to a function.

    Not to initializers: JAX also makes pytrees of placeholders, of shardings and of batched arrays.
    Nor of other annotations, which pyright has checked.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if has_shape(hint)}
    is_checked = function.__name__ != "__init__" and function.__annotations__
    return beartype(function) if is_checked else function


def has_shape(hint: Any) -> bool:
    """Whether a type, or one within it, is an array with a shape."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(has_shape(part) for part in get_args(hint))
