"""Refuses weights with NaN or infinity, which spread to all logits, hidden by argmax."""

from __future__ import annotations

import numpy as np

from specjax.runtime.errors import UserError

EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}
"""The exponent's bits by dtype; all are set in a NaN and in an infinity, and in nothing else."""


def is_finite(block: np.ndarray) -> bool:
    """Whether all numbers of an array are finite.

    16-bit numbers are checked by their exponents: `np.isfinite` widens them first and takes ten
    times as long.
    """
    mask = EXPONENTS.get(block.dtype.name)
    if mask is None:
        return bool(np.isfinite(block).all())
    exponents = block.view(np.uint16) & np.uint16(mask)
    return int(exponents.max(initial=0)) != mask


def check_finite(tensor: str, file: str, block: np.ndarray) -> None:
    """Refuses a block of a tensor of a file that holds a NaN or an infinity.

    Raises:
      UserError: naming the tensor, the file and the dtype that it was cast to.
    """
    if not is_finite(block):
        raise UserError(
            f"tensor {tensor!r} of {file!r} is not finite in {block.dtype.name}: it holds NaN or"
            " infinity, or numbers too large for the dtype, with which a model computes nothing"
        )
