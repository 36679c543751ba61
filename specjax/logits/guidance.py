"""Classifier-free guidance: strengthens the influence of the prompt on the text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts import fields
from specjax.contracts.registry import PROCESSORS
from specjax.models.base import LanguageModel
from specjax.models.guided import GuidedModel
from specjax.models.vocabularies import unwrap


@PROCESSORS.register("guidance_scale", example={"guidance_scale": 1.5})
@dataclasses.dataclass(frozen=True)
class Guidance:
    """Extrapolates the target's log-probabilities away from those without the prompt."""

    guidance_scale: float = fields.number(
        bounds="[0, inf)",
        help="strength of the prompt relative to the distribution without it; 1: off",
    )

    off: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        fields.check(self)

    def check(self, model: LanguageModel) -> None:
        """Refuses a target that does not support guidance.

        Raises:
          ValueError: saying why.
        """
        refusal = f"guidance_scale is {self.guidance_scale:g}; it must be None"
        if model.info.start_token is not None:
            raise ValueError(f"{refusal} for a target with an encoder")
        target = unwrap(model)
        if not (isinstance(target, GuidedModel) and target.scale == self.guidance_scale):
            raise ValueError(f"{refusal} here: only decodes without beams call their target twice")


def apply_guidance(model: LanguageModel, settings: Mapping[str, Any]) -> LanguageModel:
    """A target with guidance by these checked settings, if it is supported; else without it."""
    free = model.model if isinstance(model, GuidedModel) else model
    scale = settings.get("guidance_scale")
    return free if scale is None or model.info.start_token is not None else GuidedModel(free, scale)
