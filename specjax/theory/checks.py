"""Checks of arguments, with errors that give the name, the value and what is allowed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

LAW_TOLERANCE = 1e-4
"""Tolerance of a distribution's sum; float32 softmaxes over 250,000 tokens satisfy it."""


def probability(name: str, value: ArrayLike) -> np.ndarray:
    """`value` as float64; ValueError unless all of it is between 0 and 1."""
    array = np.asarray(value, np.float64)
    _require((array >= 0) & (array <= 1), name, array, "it must be between 0 and 1")
    return array


def non_negative(name: str, value: ArrayLike) -> np.ndarray:
    """`value` as float64; ValueError unless all of it is finite and at least 0."""
    array = np.asarray(value, np.float64)
    _require((array >= 0) & np.isfinite(array), name, array, "it must be finite and at least 0")
    return array


def positive(name: str, value: ArrayLike) -> np.ndarray:
    """`value` as float64; ValueError unless all of it is finite and above 0."""
    array = np.asarray(value, np.float64)
    _require((array > 0) & np.isfinite(array), name, array, "it must be finite and above 0")
    return array


def count(name: str, value: ArrayLike, least: int = 0) -> np.ndarray:
    """`value` as float64; ValueError unless all of it is whole numbers of at least `least`."""
    array = np.asarray(value, np.float64)
    whole = np.isfinite(array) & (array == np.floor(array))
    allowed = f"it must be a whole number of at least {least}"
    _require(whole & (array >= least), name, array, allowed)
    return array


def distribution(name: str, value: ArrayLike) -> np.ndarray:
    """`value` [..., V] as float64; ValueError unless it is non-negative and sums to one over V."""
    array = non_negative(name, value)
    total = array.sum(axis=-1)
    close = np.abs(total - 1.0) <= LAW_TOLERANCE
    _require(close, f"the sum of {name}", total, "it must be 1 for every distribution")
    return array


def _require(good: np.ndarray, name: str, array: np.ndarray, allowed: str) -> None:
    if not np.all(good):
        bad = np.extract(~np.asarray(good), array)[0]
        raise ValueError(f"{name} is {bad:g}; {allowed}")
