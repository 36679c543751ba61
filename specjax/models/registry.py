"""The model families by the `model_type` of their Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from specjax.models import t5_checkpoint
from specjax.models.base import LanguageModel
from specjax.models.t5 import T5


@dataclasses.dataclass(frozen=True)
class Family:
    """How to build a family's model from a configuration and where its tensors are."""

    model: type[LanguageModel]
    config_from_hf: Callable[[dict[str, Any], dict[str, Any], Any], Any]
    config_to_hf: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
    hf_names: Callable[[Any], Mapping[tuple[str, ...], tuple[str, bool]]]


_T5 = Family(T5, t5_checkpoint.config_from_hf, t5_checkpoint.config_to_hf, t5_checkpoint.hf_names)

FAMILIES: dict[str, Family] = {"t5": _T5, "mt5": _T5}


def family_of(model: LanguageModel) -> Family:
    """The family a model object belongs to."""
    return next(family for family in FAMILIES.values() if isinstance(model, family.model))
