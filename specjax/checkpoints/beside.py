"""Drafters as they stand beside a target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from specjax.checkpoints.shared_encoder import with_encoder_of
from specjax.checkpoints.shared_tokens import in_vocabulary_of
from specjax.errors import UserError
from specjax.models.base import LanguageModel
from specjax.models.on_target import FeatureDrafter, completed

if TYPE_CHECKING:
    from specjax.loading import LoadedModel


def beside(target: LoadedModel, drafters: Mapping[str, LoadedModel]) -> dict[str, LoadedModel]:
    """Drafters in the target's ids, with what they have from it: layers, an embedding, an encoder.

    Raises:
      UserError: when this target does not have it, or other tokens.
    """
    met = {}
    for name, drafter in drafters.items():
        drafter = with_encoder_of(target, in_vocabulary_of(target, drafter, name=name))
        if isinstance(drafter.model, FeatureDrafter):
            try:
                model = drafter.model.beside(target.model)
                params = completed(model.config, drafter.params, target.params)
            except ValueError as error:
                raise UserError(f"drafters[{name!r}]: {error}") from None
            drafter = dataclasses.replace(drafter, model=model, params=params)
        met[name] = drafter
    return met


def check_target(name: str, model: LanguageModel) -> None:
    """Refuses a drafter in the place of the target that it was made for.

    Raises:
      UserError: naming its family.
    """
    if isinstance(model, FeatureDrafter):
        raise UserError(
            f"target is {name!r}, a drafter of the family {model.config.family!r}; give it in"
            " drafters, beside the target that it was made for"
        )
