"""Experts in MXFP4: blocks of 32 numbers of four bits that share a power of two, as gpt-oss has.

"OCP Microscaling Formats (MX) Specification" (2023), version 1.0. `X_blocks` [E, outputs, G, 16]
has two numbers in a byte, the lower bits first; `X_scales` [E, outputs, G] the powers plus 127.
They stay four bits wide on the devices, and no number is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from specjax.hf.families.family import Stored
from specjax.hf.finite import is_finite
from specjax.hf.tensors import Place, open_file
from specjax.models.base import Where
from specjax.models.quantized_weights import MXFP4, WeightFormat, make_mxfp4_kernel
from specjax.runtime.errors import UserError

BLOCK = 32
"""Numbers that share a scale."""

BIAS, NAN = 127, 255
"""What is added to stored powers of two, and the power that is no number."""

WEIGHTS = WeightFormat(MXFP4, BLOCK)


def find_kernels(
    files: Mapping[str, Place], names: Mapping[Where, Stored]
) -> dict[Where, dict[str, str]]:
    """The names of blocks and scales of every parameter that is stored as such."""
    kinds = ("blocks", "scales")
    parts = {
        where: {kind: f"{stored.tensor}_{kind}" for kind in kinds}
        for where, stored in names.items()
    }
    return {where: one for where, one in parts.items() if files.keys() >= {*one.values()}}


def read_kernel(
    files: Mapping[str, Place],
    parts: Mapping[str, str],
    stored: Stored,
    shape: tuple[int, ...],
    dtype: Any,
) -> Any:
    """A kernel [E, D, F] of numbers of four bits and scales [E, G, F] of `dtype`.

    Raises:
      UserError: when a tensor does not have the layout or config.json's shape.
    """
    experts, inputs, outputs = shape
    groups, rows = inputs // BLOCK, outputs * stored.parts
    own = slice(stored.part, None, stored.parts)
    numbers = np.empty(shape, ml_dtypes.float4_e2m1fn)
    powers = np.empty((experts, groups, outputs), np.uint8)
    blocks = _open_slice(files[parts["blocks"]], (experts, rows, groups, BLOCK // 2))
    scales = _open_slice(files[parts["scales"]], (experts, rows, groups))
    for expert in range(experts):
        pairs = blocks[expert : expert + 1][0, own]
        codes = np.stack([pairs & 0xF, pairs >> 4], axis=-1).reshape(outputs, inputs)
        numbers[expert] = codes.view(ml_dtypes.float4_e2m1fn).T
        powers[expert] = scales[expert : expert + 1][0, own].T
    exponents = np.where(powers == NAN, BIAS, powers).astype(np.int32) - BIAS
    factors = np.ldexp(np.float32(1.0), exponents).astype(dtype)
    if np.any(powers == NAN) or not is_finite(factors):
        raise UserError(f"tensor {parts['scales']!r} has scales that are not finite in {dtype}")
    return make_mxfp4_kernel(numbers, factors)


def _open_slice(place: Place, shape: tuple[int, ...]) -> Any:
    """A tensor of bytes to read parts of."""
    with open_file(place.file) as file:
        found = file.get_slice(place.name)
    if found.get_dtype() != "U8" or tuple(found.get_shape()) != shape:
        raise UserError(
            f"tensor {place.name!r} of {str(place.file)!r} has {found.get_dtype()} of shape"
            f" {tuple(found.get_shape())}; config.json requires U8 of {shape}"
        )
    return found
