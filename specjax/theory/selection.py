"""Closed forms for the selection of drafters (docs/methods/selection.md, "Accept rate")."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count
from specjax.theory.speculative import expected_tokens


def accept_rate(alpha: ArrayLike, length: ArrayLike) -> np.ndarray:
    """Expected accepted over generated drafts: (alpha + ... + alpha^length) / length.

    Every round generates `length` >= 1 tokens and all after a rejection count as rejected, so this
    is at most the acceptance rate `alpha`, which only counts positions that were tested. Raises
    ValueError on impossible arguments.
    """
    length = count("length", length, least=1)
    return np.asarray(alpha) * expected_tokens(alpha, length - 1) / length
