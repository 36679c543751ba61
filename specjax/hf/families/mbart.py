"""mBART checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.core.registry import FAMILIES
from specjax.hf.families.bart import BartLike
from specjax.models.bart import BartConfig


@FAMILIES.register("mbart")
class MBartFamily(BartLike[BartConfig]):
    """mBART and mBART-50."""

    architecture = "MBartForConditionalGeneration"
    schema = BartLike.schema.changed("mbart", ("classifier_dropout", "is_decoder"))
    parts: ClassVar[Mapping[str, Any]] = {"embedding_norm": True, "logits_bias": True}
