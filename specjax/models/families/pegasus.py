"""Pegasus checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.core.registry import FAMILIES
from specjax.models.families.bart import BartLike
from specjax.models.sinusoids import Sinusoids


@FAMILIES.register("pegasus")
class PegasusFamily(BartLike):
    """Pegasus, such as google/pegasus-xsum."""

    architecture = "PegasusForConditionalGeneration"
    parts: ClassVar[Mapping[str, Any]] = {"logits_bias": True}

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "max_positions": fields["max_position_embeddings"],
            "sinusoids": Sinusoids(fields["d_model"]),
        }
