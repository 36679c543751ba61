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
    """How to build a family's model from a configuration and where its tensors are."""

    model: type[LanguageModel]
    config_from_hf: Callable[[dict[str, Any], dict[str, Any], Any], Any]
    config_to_hf: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
    names: Callable[[Any], Mapping[Where, Stored]]
    prefix: str = ""  # of tensor names, which checkpoints of the bare model leave off
    ignored: str = r"$^"  # names that match hold nothing to load: buffers, second copies


def positive(hf: Mapping[str, Any], *fields: str) -> None:
    """Refuses sizes that are not positive integers."""
    for field in fields:
        value = hf[field]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{field} is {value!r}; it must be a positive integer")


def eos_of(hf: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    """End-of-sequence ids; the generation config's come first."""
    found = generation.get("eos_token_id")
    found = hf.get("eos_token_id") if found is None else found
    return () if found is None else tuple(found) if isinstance(found, list) else (found,)


def eos_to_hf(eos: tuple[int, ...]) -> Any:
    """`eos_token_id` as Hugging Face writes it."""
    return eos[0] if len(eos) == 1 else list(eos) or None
