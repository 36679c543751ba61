"""Pegasus checkpoints in Hugging Face's words."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from specjax.core.registry import FAMILIES
from specjax.hf.families.bart import STACKS, BartLike
from specjax.models.bart import BartConfig
from specjax.models.sinusoids import Sinusoids


@FAMILIES.register("pegasus")
class PegasusFamily(BartLike[BartConfig]):
    """Pegasus, such as google/pegasus-xsum."""

    architecture = "PegasusForConditionalGeneration"
    schema = BartLike.schema.changed("pegasus")
    parts: ClassVar[Mapping[str, Any]] = {"logits_bias": True}

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "max_positions": fields["max_position_embeddings"],
            "sinusoids": Sinusoids(fields["d_model"]),
        }

    def of_stored(self, config: BartConfig, tensors: Collection[str]) -> BartConfig:
        """With the positions of the checkpoint, where it has some: Hugging Face reads them too."""
        config = super().of_stored(config, tensors)
        names = [f"model.{stack}.embed_positions.weight" for stack in STACKS]
        missing = [name for name in names if name not in tensors]
        if len(missing) == 1:
            raise ValueError(f"the tensor {missing[0]!r} is missing, and the other stack has one")
        return config if missing else dataclasses.replace(config, sinusoids=None)
