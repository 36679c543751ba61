"""Ids of a reduced vocabulary, which a checkpoint stores twice: as offsets and as a mask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specjax.hf.tensors import Place, open_checkpoint
from specjax.models.base import Params
from specjax.runtime.errors import UserError


def refuse_other_ids(path: Path, files: Mapping[str, Place], params: Params, mask: str) -> None:
    """Refuses a checkpoint whose `mask` [V] does not select the ids that its drafter has.

    Nothing is checked where there is no such tensor, or no reduced vocabulary.

    Raises:
      UserError: naming the tensor and the first id that differs.
    """
    if mask not in files or "ids" not in params:
        return
    with open_checkpoint(files[mask].file) as file:
        selected = np.flatnonzero(file.get_tensor(files[mask].name))
    ids = np.asarray(params["ids"])
    if len(ids) != len(selected):
        raise UserError(
            f"checkpoint {str(path)!r} has a {mask!r} that selects {len(selected)} ids; its"
            f" drafter has {len(ids)}"
        )
    differ = np.flatnonzero(ids != selected)
    if len(differ):
        number = differ[0]
        raise UserError(
            f"checkpoint {str(path)!r} has a {mask!r} whose id number {number} is"
            f" {selected[number]}; it must be {ids[number]}, that of its drafter"
        )
