"""Tensors that hold the outputs of several modules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from specjax.hf.families.family import Stored, Tensors


def split_outputs(tensor: str, widths: Mapping[str, int], groups: int = 1) -> Tensors:
    """Modules whose outputs of these `widths` lie one after another in each group of a tensor."""
    unit, total = math.gcd(*widths.values()), sum(widths.values())
    firsts = itertools.accumulate(widths.values(), initial=0)
    return {
        name: Stored(
            tensor,
            part=first // unit,
            parts=total // unit,
            spans=width // unit,
            groups=groups,
        )
        for (name, width), first in zip(widths.items(), firsts, strict=False)
    }
