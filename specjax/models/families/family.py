"""What a model family is: an architecture, and where a checkpoint keeps its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from specjax.models.base import LanguageModel

Where = tuple[str, ...]
"""Path of a parameter in its tree."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """Where a parameter lies in a checkpoint.

    `transposed`: the tensor is `[out, in]`, as PyTorch's linear layers are. A fused tensor holds
    `parts` equal parameters side by side along its output axis; this one is number `part`.
    """

    tensor: str
    transposed: bool = False
    part: int = 0
    parts: int = 1


@dataclasses.dataclass(frozen=True)
class Family:
    """How to build a family's model from a configuration and where its tensors are.

    `config_from_hf` reads the contents of `config.json` and `generation_config.json` (None where
    there is no such file) and the dtype of the arithmetic; it raises a ValueError that names the
    field, its value and what is allowed.
    """

    model: type[LanguageModel]
    config_from_hf: Callable[[dict[str, Any], dict[str, Any] | None, Any], Any]
    config_to_hf: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
    names: Callable[[Any], Mapping[Where, Stored]]
    prefix: str = ""  # of tensor names, which checkpoints of the bare model leave off
    ignored: str = r"$^"  # names that match hold nothing to load: buffers, second copies
