"""Classifier-free guidance: how much more than without its prompt a text is to follow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from specjax.contracts import fields
from specjax.contracts.registry import PROCESSORS
from specjax.models.base import LanguageModel
from specjax.models.guided import Guided
from specjax.models.vocabularies import unwrap

if TYPE_CHECKING:
    from specjax.loading import LoadedModel


@PROCESSORS.register("guidance_scale", example={"guidance_scale": 1.5})
@dataclasses.dataclass(frozen=True)
class Guidance:
    """The target's log-probabilities differ by so many times from those without the prompt."""

    guidance_scale: float = fields.number(
        bounds="[0, inf)",
        help="how far from its law without the prompt the target goes; 1: off",
    )

    off: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        fields.check(self)

    def check(self, model: LanguageModel) -> None:
        """Refuses a target that is not guided so.

        Raises:
          ValueError: saying why.
        """
        said = f"guidance_scale is {self.guidance_scale:g}; it must be None"
        if model.info.start_token is not None:
            raise ValueError(f"{said} for a target with an encoder")
        target = unwrap(model)
        if not (isinstance(target, Guided) and target.scale == self.guidance_scale):
            raise ValueError(f"{said} here: only decodes without beams call their target twice")


def apply_guidance(target: LoadedModel, settings: Mapping[str, Any]) -> LoadedModel:
    """A loaded target under these checked settings; itself where they change nothing."""
    model = guide_model(settings, target.model)
    return target if model is target.model else dataclasses.replace(target, model=model)


def guide_model(settings: Mapping[str, Any], model: LanguageModel) -> LanguageModel:
    """The target under these checked settings: guided where they say so and it can be."""
    free = model.model if isinstance(model, Guided) else model
    scale = settings.get("guidance_scale")
    return free if scale is None or model.info.start_token is not None else Guided(free, scale)
