"""The model families by the `model_type` of their Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from specjax.models import t5
from specjax.models.base import LanguageModel


@dataclasses.dataclass(frozen=True)
class Family:
    """How to build a family's model from a configuration and where its tensors are."""

    model: Callable[[Any], LanguageModel]
    config_from_hf: Callable[[dict[str, Any], dict[str, Any], Any], Any]
    hf_names: Callable[[Any], Mapping[tuple[str, ...], tuple[str, bool]]]


_T5 = Family(t5.T5, t5.config_from_hf, t5.hf_names)

FAMILIES: dict[str, Family] = {"t5": _T5, "mt5": _T5}
