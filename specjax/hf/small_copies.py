"""A loaded model once more with small weights, above all as a drafter of itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from specjax.checks import checked_weights
from specjax.errors import UserError
from specjax.models.small_weights import shrunk

if TYPE_CHECKING:
    from specjax.loading import LoadedModel


def quantised(model: LoadedModel, weights: str) -> LoadedModel:
    """A copy of a loaded model with kernels in fewer bits; all else the two share.

    So a drafter of the model itself takes memory for these kernels only. `weights` is spelled as
    for `load`.

    Raises:
      UserError: when weights are none that `load` takes, or do not fit the model.
    """
    small = checked_weights(weights, mesh=getattr(model, "mesh", None))
    params: Any = getattr(model, "params", None)
    if params is None:
        raise UserError(f"model is {model!r}; it must be what specjax.load returns")
    try:
        return dataclasses.replace(model, params=shrunk(params, small) if small else params)
    except ValueError as error:
        raise UserError(str(error)) from None
