"""Loaded speech drafters with a draft vocabulary."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.checks import check_integer
from specjax.errors import UserError
from specjax.models.draft_vocabulary import with_draft_vocabulary
from specjax.models.other_vocabulary import OtherVocabulary
from specjax.models.whisper import Whisper


def drafting_first(drafter: Any, count: int) -> Any:
    """A loaded speech drafter that drafts the first `count` ids of its vocabulary only.

    EOS, special tokens and timestamps are drafted too. Of a drafter of another vocabulary
    (`in_vocabulary_of`) the ids are its own.

    Raises:
      UserError: when it is no Whisper, or the count is no positive integer.
    """
    check_integer("count", count, 1)
    model, params = drafter.model, drafter.params
    other = isinstance(model, OtherVocabulary)
    own, weights = (model.model, params["model"]) if other else (model, params)
    if not isinstance(own, Whisper):
        raise UserError(f"drafter {drafter.name!r} is no Whisper; only those draft the first ids")
    made, weights = with_draft_vocabulary(own, weights, count)
    if other:
        made = dataclasses.replace(model, model=made)
        weights = {**params, "model": weights}
    return dataclasses.replace(drafter, model=made, params=weights)
