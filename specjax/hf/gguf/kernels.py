"""Keeps quantized kernels of a GGUF file whose format equals the `weights` of `load`.

A block of Q8_0, Q5_0, Q4_0 or IQ4_NL is 32 integers and one scale: `int8:32`, and of Q4_0 `int4`
too, is the same numbers. Blocks of the other types have minima, or scales of their scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from specjax.hf.families.family import Stored
from specjax.hf.gguf.header import is_gguf
from specjax.hf.gguf.tensors import BLOCK, SCALED, GgufFile
from specjax.hf.tensors import Place, Placement, chunks, open_parameter, place_kernel
from specjax.models.base import Params, Where
from specjax.models.quantized_weights import WeightFormat, make_quantized_kernel

KEPT = {"int8": SCALED, "int4": ("Q4_0",)}
"""Types that kernels of either kind may be stored in."""


def find_kept_kernels(
    files: Mapping[str, Place],
    names: Mapping[Where, Stored],
    shapes: Mapping[Where, tuple[int, ...]],
    weights: WeightFormat | None,
) -> dict[Where, Stored]:
    """The kernels whose stored integers and scales have the format of `weights`."""
    if weights is None or weights.group != BLOCK:
        return {}
    return {
        where: stored
        for where, stored in names.items()
        if weights.applies_to(where, shapes[where]) and _kind(files, stored) in KEPT[weights.kind]
    }


def _kind(files: Mapping[str, Place], stored: Stored) -> str:
    """The type of a GGUF file's tensor; empty: it is none."""
    place = files.get(stored.tensor)
    if place is None or not is_gguf(place.file):
        return ""
    with GgufFile(place.file) as file:
        return file.get_slice(place.name).tensor.kind


def read_kept(
    params: Params,
    files: Mapping[str, Place],
    kernels: Mapping[Where, Stored],
    shapes: Mapping[Where, tuple[int, ...]],
    weights: WeightFormat,
    dtype: Any,
    placement: Placement,
) -> None:
    """Puts what `find_kept_kernels` has found into a tree, on their devices."""
    for where, stored in kernels.items():
        node = params
        for key in where[:-1]:
            node = node.setdefault(key, {})
        with open_parameter(stored, files, shapes[where]) as parameter:
            small = _read(parameter, weights, dtype)
        node[where[-1]] = place_kernel(small, where, placement)


def _read(parameter: Any, weights: WeightFormat, dtype: Any) -> Any:
    """A kernel [D, F] as integers and scales of `dtype`, a few outputs at a time."""
    inputs, outputs = parameter.shape
    integers = np.empty((outputs, inputs), np.int8)
    scales = np.empty((outputs, inputs // BLOCK), np.float32)
    for first, last, offset in parameter.runs(0, outputs):
        for begin, end in chunks(first, last, inputs):
            rows = slice(begin + offset, end + offset)
            integers[begin:end], scales[begin:end] = parameter.slice.scaled_integers(rows)
    return make_quantized_kernel(integers.T, jnp.asarray(scales.T).astype(dtype), None, weights)
